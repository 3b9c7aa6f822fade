/*
 * A control file as a router writes it, the example of ZMailer's description. Recipients stand at
 * 115, 250, 325 and 600, the headers of the two groups at 387 and 635.
 */
#ifndef TESTS_CONTROL_EXAMPLE_H
#define TESTS_CONTROL_EXAMPLE_H

static const char control_example[] =
    "@ 0x00000007\n"
    "i 90417\n"
    "o 412\n"
    "l <20240305.0912@mill.example>\n"
    "e miller@mill.example\n"
    "s local - miller@mill.example 1204\n"
    "r           smtp mx1.grain.example baker@grain.example 65534\n"
    "N NOTIFY=FAILURE,DELAY ORCPT=rfc822;baker@grain.example\n"
    "R HDRS\n"
    "n ENV+2B77\n"
    "r           smtp mx1.grain.example cook@grain.example 65534\n"
    "N NOTIFY=NEVER\n"
    "r           smtp oven.example \"odd user\"@oven.example 65534\n"
    "m\n"
    "Received: by mill.example id <S90417>; Tue, 5 Mar 2024 09:12:00 +0000\n"
    "From: miller@mill.example\n"
    "To: baker@grain.example, cook@grain.example\n"
    "Subject: flour\n"
    "\n"
    "e miller@mill.example\n"
    "s local - miller@mill.example 1204\n"
    "r           local - storeman 310\n"
    "m\n"
    "From: miller@mill.example\n"
    "To: storeman\n"
    "Subject: flour\n"
    "\n";

/* What is appended when the odd user is refused. */
static const char control_example_failed[] =
    "d 325:387:-1::1709630002\t\"odd user\"@oven.example\001failed\0015.1.1 (no such "
    "user)\001smtp; "
    "550 (user unknown)\001dns; oven.example\001smtp[4711]\tsmtp; 550 user unknown\n";

#endif
