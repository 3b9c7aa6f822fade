"""Whole configurations of Postfix, each written after the manner of a kind of site, for the test of the import.

NAME -> {path below /etc: text}. `{cert}` and so on are not templates: the test makes the files that every site has
(certificates below /etc/ssl/mail, /etc/mailname, /etc/aliases).
"""

STOCK = """smtp      inet  n       -       y       -       -       smtpd
pickup    unix  n       -       y       60      1       pickup
cleanup   unix  n       -       y       -       0       cleanup
qmgr      unix  n       -       n       300     1       qmgr
tlsmgr    unix  -       -       y       1000?   1       tlsmgr
rewrite   unix  -       -       y       -       -       trivial-rewrite
bounce    unix  -       -       y       -       0       bounce
smtp      unix  -       -       y       -       -       smtp
relay     unix  -       -       y       -       -       smtp
        -o syslog_name=${multi_instance_name?{$multi_instance_name}:{postfix}}/$service_name
local     unix  -       n       n       -       -       local
virtual   unix  -       n       n       -       -       virtual
lmtp      unix  -       -       y       -       -       lmtp
maildrop  unix  -       n       n       -       -       pipe
  flags=DRXhu user=vmail argv=/usr/bin/maildrop -d ${recipient}
uucp      unix  -       n       n       -       -       pipe
  flags=Fqhu user=uucp argv=uux -r -n -z -a$sender - $nexthop!rmail ($recipient)
"""

SUBMISSION = """submission inet n       -       y       -       -       smtpd
  -o syslog_name=postfix/submission
  -o smtpd_tls_security_level=encrypt
  -o smtpd_sasl_auth_enable=yes
  -o smtpd_tls_auth_only=yes
  -o smtpd_client_restrictions=permit_sasl_authenticated,reject
  -o milter_macro_daemon_name=ORIGINATING
"""

SUBMISSIONS = """smtps     inet  n       -       y       -       -       smtpd
  -o syslog_name=postfix/smtps
  -o smtpd_tls_wrappermode=yes
  -o smtpd_sasl_auth_enable=yes
  -o smtpd_client_restrictions=permit_sasl_authenticated,reject
"""

TLS = """smtpd_tls_cert_file = /etc/ssl/mail/cert.pem
smtpd_tls_key_file = /etc/ssl/mail/key.pem
smtpd_tls_security_level = may
smtp_tls_security_level = may
smtpd_tls_auth_only = yes
smtpd_tls_mandatory_protocols = !SSLv2, !SSLv3, !TLSv1, !TLSv1.1
smtp_tls_session_cache_database = btree:${data_directory}/smtp_scache
"""

DOVECOT = """smtpd_sasl_type = dovecot
smtpd_sasl_path = private/auth
"""

SAMPLES = {
    # a fresh installation: mailboxes of the machine's users, aliases
    "debian": {
        "postfix/main.cf": """smtpd_banner = $myhostname ESMTP $mail_name (Debian/GNU)
biff = no
append_dot_mydomain = no
readme_directory = no
compatibility_level = 3.6
smtpd_tls_cert_file = /etc/ssl/mail/cert.pem
smtpd_tls_key_file = /etc/ssl/mail/key.pem
smtpd_tls_security_level = may
smtp_tls_CApath = /etc/ssl/certs
smtp_tls_security_level = may
smtpd_relay_restrictions = permit_mynetworks permit_sasl_authenticated defer_unauth_destination
myhostname = mail.example.org
alias_maps = hash:/etc/aliases
alias_database = hash:/etc/aliases
myorigin = /etc/mailname
mydestination = $myhostname, example.org, localhost.example.org, localhost
relayhost =
mynetworks = 127.0.0.0/8 [::ffff:127.0.0.0]/104 [::1]/128
mailbox_size_limit = 0
recipient_delimiter = +
inet_interfaces = all
inet_protocols = all
""",
        "postfix/master.cf": STOCK,
    },
    # sends what its programs write, and accepts nothing
    "null client": {
        "postfix/main.cf": """compatibility_level = 3.6
myhostname = web7.example.org
myorigin = $mydomain
relayhost = $mydomain
inet_interfaces = loopback-only
mydestination =
smtp_tls_security_level = may
""",
        "postfix/master.cf": STOCK,
    },
    # everything to a provider, with a login
    "smarthost": {
        "postfix/main.cf": """compatibility_level = 2
myhostname = office.example.org
myorigin = /etc/mailname
mydestination = $myhostname, localhost.$mydomain, localhost
mynetworks = 127.0.0.0/8 192.168.10.0/24
relayhost = [smtp.example.net]:submission
smtp_sasl_auth_enable = yes
smtp_sasl_password_maps = hash:/etc/postfix/sasl_passwd
smtp_sasl_security_options = noanonymous
smtp_tls_security_level = encrypt
sender_dependent_relayhost_maps = hash:/etc/postfix/sender_relay
smtp_sender_dependent_authentication = yes
header_size_limit = 4096000
""",
        "postfix/master.cf": STOCK,
        "postfix/sasl_passwd": "[smtp.example.net]:submission office@example.org:pass word\n@shop.example shop:secret\n",
        "postfix/sender_relay": "@shop.example [mail.shop.example]:587\n",
    },
    # mailboxes in Dovecot, everything in a database, rspamd, postscreen
    "containers": {
        "postfix/main.cf": """biff = no
append_dot_mydomain = no
""" + TLS + """smtpd_relay_restrictions = permit_mynetworks, permit_sasl_authenticated, defer_unauth_destination
mynetworks = 127.0.0.0/8 [::1]/128 172.22.1.0/24
relayhost =
inet_interfaces = all
mydestination = localhost
postscreen_access_list = permit_mynetworks, cidr:/etc/postfix/allow.cidr
postscreen_greet_action = enforce
postscreen_dnsbl_sites = zen.example*3
smtpd_recipient_restrictions = permit_sasl_authenticated, permit_mynetworks, check_recipient_access proxy:mysql:/etc/postfix/sql/spam.cf,
  reject_invalid_helo_hostname, reject_unknown_reverse_client_hostname, reject_unauth_destination
smtpd_sender_login_maps = proxy:mysql:/etc/postfix/sql/senders.cf
virtual_alias_maps = proxy:mysql:/etc/postfix/sql/aliases.cf
virtual_mailbox_domains = proxy:mysql:/etc/postfix/sql/domains.cf
virtual_mailbox_maps = proxy:mysql:/etc/postfix/sql/mailboxes.cf
virtual_transport = lmtp:inet:127.0.0.1:24
smtpd_sasl_type = dovecot
smtpd_sasl_path = inet:127.0.0.1:10001
smtpd_milters = inet:127.0.0.1:9900
non_smtpd_milters = inet:127.0.0.1:9900
milter_default_action = tempfail
proxy_read_maps = proxy:mysql:/etc/postfix/sql/domains.cf
transport_maps = proxy:mysql:/etc/postfix/sql/transports.cf
smtp_tls_policy_maps = proxy:mysql:/etc/postfix/sql/tls.cf
message_size_limit = 104857600
""",
        "postfix/master.cf": """smtp       inet  n       -       n       -       1       postscreen
smtpd      pass  -       -       n       -       -       smtpd
  -o smtpd_sasl_auth_enable=no
dnsblog    unix  -       -       n       -       0       dnsblog
10025      inet  n       -       n       -       1       postscreen
  -o postscreen_upstream_proxy_protocol=haproxy
""" + SUBMISSION.replace(" y ", " n ") + SUBMISSIONS.replace(" y ", " n "),
    },
    # lists in files, LMTP to Dovecot in the same container, an SPF policy
    "one container": {
        "postfix/main.cf": """mail_name = Mail
myhostname = mail.example.org
mydestination = localhost.$mydomain, localhost
mynetworks = 127.0.0.0/8 [::1]/128
smtpd_tls_chain_files = /etc/ssl/mail/key.pem /etc/ssl/mail/cert.pem
smtpd_tls_security_level = may
smtp_tls_security_level = may
tls_preempt_cipherlist = yes
smtpd_helo_required = yes
smtpd_delay_reject = yes
disable_vrfy_command = yes
mua_sender_restrictions = reject_authenticated_sender_login_mismatch, permit_sasl_authenticated, reject
dms_relay = permit_mynetworks, permit_sasl_authenticated, reject_unauth_destination
smtpd_relay_restrictions = $dms_relay
smtpd_recipient_restrictions = permit_sasl_authenticated, permit_mynetworks, reject_unauth_destination,
  check_policy_service unix:private/policyd-spf, reject_unauth_pipelining, reject_unknown_recipient_domain
smtpd_client_restrictions = permit_mynetworks, permit_sasl_authenticated, reject_unauth_pipelining
smtpd_sasl_auth_enable = yes
smtpd_sasl_type = dovecot
smtpd_sasl_path = /var/run/auth.sock
virtual_transport = lmtp:unix:/var/run/lmtp.sock
virtual_mailbox_domains = /etc/postfix/vhost
virtual_mailbox_maps = texthash:/etc/postfix/vmailbox
virtual_alias_maps = texthash:/etc/postfix/virtual
policyd-spf_time_limit = 3600
smtpd_milters = inet:127.0.0.1:8891, unix:/run/opendmarc.sock
milter_default_action = accept
header_checks = pcre:/etc/postfix/header_checks
maillog_file = /dev/stdout
""",
        "postfix/master.cf": """smtp      inet  n       -       n       -       -       smtpd
""" + SUBMISSION.replace(" y ", " n ") + """  -o smtpd_sender_restrictions=$mua_sender_restrictions
policyd-spf unix -      n       n       -       0       spawn
  user=nobody argv=/usr/bin/policyd-spf
""",
        "postfix/vhost": "example.org\nexample.com\n",
        "postfix/vmailbox": "ann@example.org example.org/ann/\nbob@example.com example.com/bob/\n",
        "postfix/virtual": "info@example.org ann@example.org\n",
        "postfix/header_checks": "/^X-Virus:/ REJECT no\n",
    },
    # amavis by content_filter, Dovecot's program as a pipe, SQL by proxymap
    "amavis": {
        "postfix/main.cf": TLS + DOVECOT + """myhostname = mx.example.net
mydestination = $myhostname, localhost, localhost.localdomain
mynetworks = 127.0.0.1 [::1]
virtual_mailbox_domains = proxy:mysql:/etc/postfix/mysql/domains.cf
virtual_mailbox_maps = proxy:mysql:/etc/postfix/mysql/mailboxes.cf
relay_domains = $mydestination proxy:mysql:/etc/postfix/mysql/relays.cf
virtual_transport = dovecot
dovecot_destination_recipient_limit = 1
content_filter = smtp-amavis:[127.0.0.1]:10024
smtp-amavis_destination_recipient_limit = 1000
smtpd_recipient_restrictions = reject_non_fqdn_recipient, reject_unlisted_recipient,
  check_policy_service inet:127.0.0.1:7777, permit_mynetworks, permit_sasl_authenticated, reject_unauth_destination
smtpd_helo_restrictions = permit_mynetworks, permit_sasl_authenticated, check_helo_access pcre:/etc/postfix/helo.pcre
smtpd_sasl_auth_enable = no
alias_maps = hash:/etc/postfix/aliases
enable_original_recipient = no
""",
        "postfix/master.cf": STOCK + SUBMISSION + """dovecot   unix  -       n       n       -       -       pipe
    flags=DRh user=vmail:vmail argv=/usr/lib/dovecot/deliver -f ${sender} -d ${user}@${domain} -m ${extension}
smtp-amavis unix -      -       n       -       2       smtp
    -o smtp_data_done_timeout=1200
    -o smtp_send_xforward_command=yes
    -o disable_dns_lookups=yes
    -o max_use=20
127.0.0.1:10025 inet n  -       n       -       -       smtpd
    -o content_filter=
    -o mynetworks_style=host
    -o mynetworks=127.0.0.0/8
    -o smtpd_client_restrictions=
    -o smtpd_recipient_restrictions=permit_mynetworks,reject
    -o receive_override_options=no_header_body_checks,no_unknown_recipient_checks
""",
        "postfix/aliases": "postmaster: root\n",
    },
    # a hosting panel: names of the machine in a file, mailing lists by a pipe
    "panel": {
        "postfix/main.cf": TLS + DOVECOT + """myhostname = server1.example.com
mydestination = server1.example.com, localhost, /etc/postfix/local-host-names
mynetworks = 127.0.0.0/8 [::1]/128
mynetworks_style = host
alias_maps = hash:/etc/aliases, hash:/var/lib/mailman/data/aliases
virtual_alias_domains =
virtual_mailbox_domains = hash:/etc/postfix/domains
virtual_mailbox_base = /var/vmail
virtual_mailbox_maps = hash:/etc/postfix/mailboxes
virtual_uid_maps = static:5000
virtual_gid_maps = static:5000
virtual_transport = lmtp:unix:private/dovecot-lmtp
smtpd_sasl_auth_enable = yes
broken_sasl_auth_clients = yes
smtpd_restriction_classes = greylisting
greylisting = check_policy_service inet:127.0.0.1:10023
smtpd_sender_restrictions = check_sender_access regexp:/etc/postfix/tag.re, permit_mynetworks, permit_sasl_authenticated
smtpd_client_message_rate_limit = 100
body_checks = regexp:/etc/postfix/body_checks
nested_header_checks = regexp:/etc/postfix/nested
mailman_destination_recipient_limit = 1
transport_maps = hash:/etc/postfix/transport
relay_domains = hash:/etc/postfix/relays
relay_recipient_maps = hash:/etc/postfix/relay_users
smtpd_use_tls = yes
""",
        "postfix/master.cf": STOCK + SUBMISSION + SUBMISSIONS + """mailman   unix  -       n       n       -       -       pipe
  flags=FR user=list argv=/usr/lib/mailman/bin/postfix-to-mailman.py ${nexthop} ${user}
""",
        "postfix/local-host-names": "web.example.com\nftp.example.com\n",
        "postfix/domains": "shop.example.com x\nclub.example.com x\n",
        "postfix/mailboxes": "ann@shop.example.com shop.example.com/ann/\n",
        "postfix/body_checks": "/viagra/ REJECT\n",
        "postfix/transport": "lists.example.com mailman:\nbackup.example.com smtp:[10.0.0.9]:smtp\n",
        "postfix/relays": "backup.example.com x\n",
        "postfix/relay_users": "@backup.example.com x\n",
    },
    # a personal server: LDAP, sender logins, a login map, a private relay network
    "ldap": {
        "postfix/main.cf": """smtpd_banner = $myhostname Service ready
myhostname = self.example.net
mydomain = self.example.net
smtpd_tls_chain_files = /etc/ssl/mail/key.pem, /etc/ssl/mail/cert.pem
smtpd_tls_security_level = may
smtp_tls_security_level = may
smtpd_tls_dh1024_param_file = /etc/ssl/ffdhe2048.pem
alias_maps = hash:/etc/aliases
mydestination = localhost
mynetworks = 127.0.0.0/8 [::1]/128
virtual_mailbox_domains = ldap:/etc/postfix/ldap-domains.cf
virtual_mailbox_maps = ldap:/etc/postfix/ldap-accounts.cf
virtual_alias_maps = ldap:/etc/postfix/ldap-aliases.cf
virtual_transport = dovecot
dovecot_destination_recipient_limit = 1
smtpd_sasl_auth_enable = yes
smtpd_sasl_type = dovecot
smtpd_sasl_path = private/auth
smtpd_sender_login_maps = unionmap:{ldap:/etc/postfix/ldap-groups.cf, ldap:/etc/postfix/ldap-accounts.cf}
smtpd_sender_restrictions = reject_sender_login_mismatch, permit_mynetworks, permit_sasl_authenticated, reject_non_fqdn_sender
sender_canonical_maps = regexp:/etc/postfix/sender_canonical
smtpd_forbid_bare_newline = normalize
smtputf8_enable = no
""",
        "postfix/master.cf": STOCK + SUBMISSION + """dovecot   unix  -       n       n       -       -       pipe
  flags=DRhu user=vmail:mail argv=/usr/lib/dovecot/deliver -f ${sender} -d ${user}@${nexthop} -m ${extension} -a ${original_recipient}
""",
    },
    # newsletters from several addresses, with limits for some sites
    "newsletters": {
        "postfix/main.cf": """compatibility_level = 3.6
myhostname = news.example.com
mydestination =
mynetworks = 127.0.0.0/8 10.20.0.0/16
inet_interfaces = all
transport_maps = hash:/etc/postfix/transport
default_destination_concurrency_limit = 10
default_destination_rate_delay = 0s
slow_destination_concurrency_limit = 2
slow_destination_rate_delay = 5s
slow_destination_recipient_limit = 1
smtp_destination_concurrency_limit = 50
maximal_queue_lifetime = 2d
bounce_queue_lifetime = 1d
minimal_backoff_time = 5m
smtp_tls_security_level = dane
smtp_dns_support_level = dnssec
smtp_tls_policy_maps = hash:/etc/postfix/tls_policy
smtpd_milters = inet:127.0.0.1:8891
non_smtpd_milters = $smtpd_milters
qmgr_message_active_limit = 40000
smtp_connection_cache_destinations = big.example
""",
        "postfix/master.cf": STOCK + """slow      unix  -       -       n       -       5       smtp
  -o syslog_name=postfix-slow
  -o smtp_bind_address=127.0.0.1
  -o smtp_helo_name=slow.example.com
""",
        "postfix/transport": "big.example slow:\nhuge.example slow:[mx.huge.example]:smtp\n",
        "postfix/tls_policy": "bank.example secure\n[mx.huge.example]:25 encrypt\n",
    },
    # the outer mail exchanger of a company
    "relay": {
        "postfix/main.cf": TLS + """myhostname = mx1.example.net
mydestination = $myhostname
mynetworks = cidr:/etc/postfix/mynetworks, 127.0.0.0/8
relay_domains = example.net, lmdb:$config_directory/relay_domains
relay_recipient_maps = lmdb:$config_directory/relay_recipients
transport_maps = proxy:btree:$config_directory/transport
local_recipient_maps = $alias_maps
smtpd_client_restrictions = check_client_access cidr:/etc/postfix/clients
smtpd_recipient_restrictions = reject_unauth_pipelining
soft_bounce = no
bounce_size_limit = 20000
""",
        "postfix/master.cf": STOCK,
        "postfix/mynetworks": "192.0.2.0/24 OK\n2001:db8::/32 OK\n",
        "postfix/relay_domains": "example.com OK\n.example.com OK\n",
        "postfix/relay_recipients": "ann@example.com x\n@example.net x\n",
        "postfix/transport": "example.com smtp:[10.1.1.1]:smtp\nexample.net smtp:[10.1.1.2]\n",
        "postfix/clients": "203.0.113.0/24 REJECT\n",
    },
    # a provider: its customers' networks may relay if they pass some rules
    "provider": {
        "postfix/main.cf": TLS + """myhostname = out.example.net
mynetworks = 127.0.0.0/8 198.51.100.0/22 203.0.113.0/24
smtpd_recipient_restrictions = check_client_access hash:/etc/postfix/blocked, reject_rbl_client own.example, permit_mynetworks, reject
smtpd_relay_restrictions =
mailbox_command = /usr/bin/procmail -a "$EXTENSION"
home_mailbox = Maildir/
""",
        "postfix/master.cf": STOCK,
        "postfix/blocked": "198.51.100.7 REJECT\nbad.example REJECT\n",
    },
}
