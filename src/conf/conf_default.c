#include "conf.h"

const char conf_default_text[] =
    "# What holds when no configuration file is named: a try-out that needs no privileges.\n"
    "state_directory = run\n"
    "spool = sqlite:queue.db\n"
    "listen = smtp://127.0.0.1:2525\n"
    "relay_networks = 127.0.0.0/8 [::1]/128\n"
    "local_domains = localhost *.test\n"
    "local_transport = local\n"
    "control_socket = control.sock\n"
    "log = stderr\n"
    "\n"
    "local/*\n"
    "    agent=maildir maildir=mail/%d/%u/\n";

const char conf_default_root_text[] = "    user=nobody\n";
