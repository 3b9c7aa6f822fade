/*
 * SANITIZED: 1 in builds with the address sanitizer, else 0.
 *
 * Such a build may need rights that a production build does not get (the sanitizer reads /proc),
 * and may spend time on making a mistake visible.
 */
#ifndef BASE_SANITIZED_H
#define BASE_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif
