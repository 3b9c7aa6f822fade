/*
 * A certificate authority and a server that it certifies, mx.example.test, for tests only: the keys
 * are public. Valid from 2020 to 2125.
 */
#ifndef TESTS_TLS_FIXTURE_H
#define TESTS_TLS_FIXTURE_H

static const char fixture_authority[] =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBVTCB/KADAgECAgIQADAKBggqhkjOPQQDAjAZMRcwFQYDVQQDDA5UZXN0IGF1\n"
    "dGhvcml0eTAgFw0yMDAxMDEwMDAwMDBaGA8yMTI2MDEwMTAwMDAwMFowGTEXMBUG\n"
    "A1UEAwwOVGVzdCBhdXRob3JpdHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARK\n"
    "71niz9BaCmayA2r/BoaOZR4Km2xkfW/MaZZmTIDW95RZLETWe95rvglSpejDj49K\n"
    "57tZ6hlr9UIA1D07+w1IozIwMDAPBgNVHRMBAf8EBTADAQH/MB0GA1UdDgQWBBTo\n"
    "RhKj+1Dw3vQ9JtX/GajJOe6hJDAKBggqhkjOPQQDAgNIADBFAiAIWG5TPaX5i0fV\n"
    "CBKXCGHwh94jnPZ8fE6bzgek9BjSNgIhANJYkx9s9MGnhPl8t19nTwzO63mKpD6Z\n"
    "T+eNLg6On9mo\n"
    "-----END CERTIFICATE-----\n";

static const char fixture_certificate[] =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBhDCCASmgAwIBAgICEAEwCgYIKoZIzj0EAwIwGTEXMBUGA1UEAwwOVGVzdCBh\n"
    "dXRob3JpdHkwIBcNMjAwMTAxMDAwMDAwWhgPMjEyNjAxMDEwMDAwMDBaMBoxGDAW\n"
    "BgNVBAMMD214LmV4YW1wbGUudGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA\n"
    "BFX/Mc+kXpAX/qo+86Y3h7Y8YgI7UFTDVk1Vx60ulu9ErLImIfFIfgM5GV9vLnpT\n"
    "GUkcT8PwBuqoLg91+v9ScUujXjBcMBoGA1UdEQQTMBGCD214LmV4YW1wbGUudGVz\n"
    "dDAdBgNVHQ4EFgQUvpGMvJG7QjZKxxK6dJ2h2ZLOWwwwHwYDVR0jBBgwFoAU6EYS\n"
    "o/tQ8N70PSbV/xmoyTnuoSQwCgYIKoZIzj0EAwIDSQAwRgIhAIJMp5L4s2O+QfN/\n"
    "Qp/mfxy0FXYPFQOtye9/BR/D95MoAiEApDcdtX0jpT68PcAve5QZTK7qL5dVVEk3\n"
    "tD6Ux5NggZI=\n"
    "-----END CERTIFICATE-----\n";

static const char fixture_key[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgfS/hWREmGqXJK7oY\n"
    "xZuFhq2S1JcOQ7fYTfB4e2KmmeihRANCAARV/zHPpF6QF/6qPvOmN4e2PGICO1BU\n"
    "w1ZNVcetLpbvRKyyJiHxSH4DORlfby56UxlJHE/D8AbqqC4Pdfr/UnFL\n"
    "-----END PRIVATE KEY-----\n";

#endif
