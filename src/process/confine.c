#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <pwd.h>
#include <seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sysexits.h>
#include <unistd.h>

#include "check.h"
#include "sanitized.h"

/* Limit of descriptors: more are not needed, and some libraries visit each possible one. */
#define DESCRIPTORS_MAX 1048576

/* ---- limits and users ----------------------------------------------------------------------- */

void confine_cores(void)
{
    /* 1, not 0: if core_pattern is a pipe (systemd-coredump, apport), the kernel treats exactly
     * this limit as "no dump". A file of this size is not written either. */
    const struct rlimit limit = {1, 1};

    if (getenv("SLUICE_CORE") == NULL) {
        (void)setrlimit(RLIMIT_CORE, &limit); /* on a failure a lower limit was set: no files */
    }
}

void confine_limits(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max < DESCRIPTORS_MAX ? limit.rlim_max : DESCRIPTORS_MAX;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* otherwise fewer must suffice */
    }
    confine_cores();
}

bool confine_find_user(const char *name, struct confine_user *ret_user, struct buf *ret_error)
{
    unsigned long long uid;
    struct passwd *user;

    errno = 0;
    user = slice_number(slice_string(name), UINT32_MAX - 1, &uid) ? getpwuid((uid_t)uid)
                                                                  : getpwnam(name);
    if (user == NULL) {
        (void)buf_addf(ret_error, "user \"%s\": %s", name,
                       errno == 0 ? "there is no such user" : strerror(errno)); /* sticky */
        return false;
    }
    ret_user->uid = user->pw_uid;
    ret_user->gid = user->pw_gid;
    return true;
}

static bool fail(struct buf *error, const char *what)
{
    (void)buf_addf(error, "confining this process: %s: %s", what, strerror(errno)); /* sticky */
    return false;
}

static bool become(const struct confine_user *user, struct buf *error)
{
    if (setgroups(1, &user->gid) != 0 || setgid(user->gid) != 0 || setuid(user->uid) != 0) {
        (void)buf_addf(error,
                       "changing to user %u and group %u, which must exist in this user "
                       "namespace: %s",
                       (unsigned)user->uid, (unsigned)user->gid, strerror(errno)); /* sticky */
        return false;
    }
    CHECK(user->uid == 0 || setuid(0) != 0); /* root can't be regained */
    return true;
}

bool confine_to_user(const char *name, struct buf *ret_error)
{
    struct confine_user user;

    if (name[0] == '\0' || geteuid() != 0) {
        return true;
    }
    return confine_find_user(name, &user, ret_error) && become(&user, ret_error);
}

/* Returns the capabilities that root needs for others' files in a shared spool and in maildrop.
 * `held`: its present capabilities; in a container CAP_DAC_READ_SEARCH may be missing, and
 * CAP_DAC_OVERRIDE must replace it. */
static uint32_t capabilities_of(const struct confine *plan, uint32_t held)
{
    const uint32_t any_file = CAP_TO_MASK(CAP_DAC_OVERRIDE) | CAP_TO_MASK(CAP_FOWNER);
    const uint32_t any_read = CAP_TO_MASK(CAP_DAC_READ_SEARCH);
    struct stat st;

    _Static_assert(CAP_DAC_OVERRIDE < 32 && CAP_DAC_READ_SEARCH < 32 && CAP_FOWNER < 32 &&
                       CAP_SETUID < 32,
                   "in one word");
    if (plan->role != ROLE_PICKUP) {
        return any_file | CAP_TO_MASK(CAP_SETUID);
    }
    CHECK(fstat(plan->maildrop, &st) == 0);
    if (st.st_uid != 0 || (st.st_mode & S_IRWXU) != S_IRWXU) {
        return any_file;
    }
    return (held & any_read) != 0 ? any_read : CAP_TO_MASK(CAP_DAC_OVERRIDE);
}

/* Drops all capabilities of root except those of the plan. */
static bool drop_capabilities(const struct confine *plan, struct buf *error)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
    uint32_t kept;

    if (syscall(SYS_capget, &header, data) != 0) {
        return fail(error, "reading the capabilities");
    }
    kept = capabilities_of(plan, data[0].permitted);
    data[0].effective &= kept;
    data[0].permitted &= kept;
    data[0].inheritable = data[1].effective = data[1].permitted = data[1].inheritable = 0;
    return syscall(SYS_capset, &header, data) == 0 || fail(error, "dropping capabilities");
}

/* Looks up the user outside the chroot, where /etc/passwd is, and changes to it inside. */
static bool enter_root(const struct confine *plan, struct buf *error)
{
    struct confine_user user;
    bool switch_user = plan->user[0] != '\0' && geteuid() == 0;

    if (switch_user && !confine_find_user(plan->user, &user, error)) {
        return false;
    }
    if (plan->root[0] != '\0' && geteuid() == 0) {
        if (chroot(plan->root) != 0 || chdir("/") != 0) {
            return fail(error, plan->root);
        }
    }
    return !switch_user || become(&user, error);
}

/* ---- Landlock ---------------------------------------------------------------------------------
 *
 * Uses system calls, because Debian 12 has no library for Landlock, and defines the names of newer
 * kernels, because its headers end at version 2. The kernel accepts a longer structure than its own
 * if the rest is zero. */

#define LANDLOCK_FS_V1   UINT64_C(0x1fff) /* execute ... make_sym */
#define LANDLOCK_FS_V2   UINT64_C(0x2000) /* refer */
#define LANDLOCK_FS_V3   UINT64_C(0x4000) /* truncate */
#define LANDLOCK_FS_EXEC UINT64_C(0x0001)
#define LANDLOCK_FS_READ UINT64_C(0x000c) /* read_file, read_dir */
#define LANDLOCK_FS_MOVE UINT64_C(0x2120) /* remove_file, make_reg, refer */
#define LANDLOCK_NET_V4  UINT64_C(0x3)    /* bind_tcp, connect_tcp */
#define LANDLOCK_CONNECT UINT64_C(0x2)
#define LANDLOCK_SCOPES  UINT64_C(0x3) /* abstract sockets, signals; version 6 */

struct landlock_ruleset {
    uint64_t handled_fs;
    uint64_t handled_net;
    uint64_t scoped;
};

struct landlock_path {
    uint64_t allowed;
    int32_t parent_fd;
} __attribute__((packed));

struct landlock_port {
    uint64_t allowed;
    uint64_t port;
};

static bool landlock_allow_in(int ruleset, int directory, uint64_t access)
{
    struct landlock_path rule = {.allowed = access, .parent_fd = directory};

    return syscall(SYS_landlock_add_rule, ruleset, 1 /* path beneath */, &rule, 0) == 0;
}

static bool landlock_allow(int ruleset, const char *path, uint64_t access, struct buf *error)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    bool ok = fd >= 0 && landlock_allow_in(ruleset, fd, access);

    ok = ok || fail(error, path);
    if (fd >= 0) {
        (void)close(fd); /* O_PATH: nothing is written */
    }
    return ok;
}

static bool landlock_rules(const struct confine *plan, int ruleset,
                           const struct landlock_ruleset *handled, struct buf *error)
{
    static const char *const readable[] = {"/etc", "/usr", "/lib", "/run", "/dev"};
    const uint64_t handled_fs = handled->handled_fs;

    for (size_t i = 0; handled->handled_net != 0 && i < plan->port_count; i++) {
        const struct landlock_port rule = {LANDLOCK_CONNECT, plan->ports[i]};

        if (syscall(SYS_landlock_add_rule, ruleset, 2 /* port */, &rule, 0) != 0) {
            return fail(error, "a port");
        }
    }
    for (size_t i = 0; i < plan->writable_count; i++) {
        if (!landlock_allow(ruleset, plan->writable[i], handled_fs & ~LANDLOCK_FS_EXEC, error)) {
            return false;
        }
    }
    /* The client of a database server resolves names and reads its own settings. */
    for (size_t i = 0; plan->remote_spool && i < sizeof readable / sizeof readable[0]; i++) {
        if (!landlock_allow(ruleset, readable[i], LANDLOCK_FS_READ | LANDLOCK_FS_EXEC, error)) {
            return false;
        }
    }
    if (plan->maildrop >= 0 &&
        !landlock_allow_in(ruleset, plan->maildrop,
                           handled_fs & (LANDLOCK_FS_READ | LANDLOCK_FS_MOVE))) {
        return fail(error, "maildrop");
    }
    return !SANITIZED || landlock_allow(ruleset, "/", LANDLOCK_FS_READ, error);
}

/* Does the role make HTTPS calls? */
static bool is_caller(const struct confine *plan)
{
    return plan->role == ROLE_FETCH || plan->role == ROLE_HOOK;
}

/* Does the role connect only to certain ports? */
static bool has_ports(const struct confine *plan)
{
    return is_caller(plan) || plan->role == ROLE_RESOLVE;
}

static bool enter_landlock(const struct confine *plan, struct buf *error)
{
    struct landlock_ruleset attr = {.handled_fs = LANDLOCK_FS_V1};
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1 /* returns the version */);
    int ruleset;
    bool ok;

    if (version < 1 || (version < 2 && plan->maildrop >= 0)) {
        return true; /* no Landlock (ENOSYS, EOPNOTSUPP), or it forbids moves between directories */
    }
    attr.handled_fs |= version >= 2 ? LANDLOCK_FS_V2 : 0;
    attr.handled_fs |= version >= 3 ? LANDLOCK_FS_V3 : 0;
    if (version >= 4 && plan->role != ROLE_DELIVER && !plan->remote_spool) {
        attr.handled_net = has_ports(plan) ? LANDLOCK_CONNECT : LANDLOCK_NET_V4;
    }
    attr.scoped = version >= 6 ? LANDLOCK_SCOPES : 0;
    ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    if (ruleset < 0) {
        return fail(error, "landlock_create_ruleset");
    }
    ok = landlock_rules(plan, ruleset, &attr, error) &&
         (syscall(SYS_landlock_restrict_self, ruleset, 0) == 0 ||
          fail(error, "landlock_restrict_self"));
    (void)close(ruleset); /* not a file */
    return ok;
}

/* ---- system calls --------------------------------------------------------------------------- */

/* Memory, time, existing descriptors, and exit. */
static const char *const calls_common[] = {
    "read",
    "readv",
    "pread64",
    "write",
    "writev",
    "pwrite64",
    "close",
    "lseek",
    "fcntl",
    "recvmsg",
    "recvfrom",
    "shutdown",
    "getsockopt",
    "setsockopt",
    "getsockname",
    "getpeername",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "eventfd2",
    "pipe2",
    "dup",
    "dup3",
    "memfd_create",
    "ftruncate",
    "sendfile",
    "fstat",
    "newfstatat",
    "statx",
    "brk",
    "munmap",
    "mremap",
    "madvise",
    "clock_gettime",
    "clock_getres",
    "clock_nanosleep",
    "nanosleep",
    "setitimer",
    "gettimeofday",
    "time",
    "getrandom",
    "exit",
    "exit_group",
    "restart_syscall",
    "rt_sigreturn",
    "rt_sigaction",
    "rt_sigprocmask",
    "sigaltstack",
    "futex",
    "sched_yield",
    "sysinfo",
    "uname",
    "getpid",
    "gettid",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "getrusage",
    "getrlimit",
    "set_robust_list",
    "rseq",
};

static const char *const calls_accept[] = {"accept", "accept4"};

static const char *const calls_connect[] = {"connect", "bind", "recvmmsg"};

/* A client of a database uses timers for its connections. */
static const char *const calls_database[] = {"timerfd_settime"};

static const char *const calls_files[] = {
    "open",       "openat",     "unlink",    "unlinkat",        "rename",   "renameat",
    "renameat2",  "link",       "linkat",    "mkdir",           "mkdirat",  "rmdir",
    "truncate",   "fsync",      "fdatasync", "sync_file_range", "syncfs",   "preadv",
    "pwritev",    "flock",      "chmod",     "fchmod",          "fchmodat", "fchown",
    "utimensat",  "getdents64", "readlink",  "readlinkat",      "access",   "faccessat",
    "faccessat2", "stat",       "lstat",     "statfs",          "fstatfs",  "getcwd",
    "umask",      "fallocate",  "fadvise64", "msync",
};

/* For maildrop, as well as opening files to read. */
static const char *const calls_maildrop[] = {"unlinkat", "renameat2", "getdents64"};

/* For writing as another user, and for checks whether a process has ended. */
static const char *const calls_foreign_files[] = {"setfsuid", "pidfd_open"};

/* Calls that libraries try sometimes; they fail with EACCES. */
static const char *const calls_refused_files[] = {
    "open",  "access",   "faccessat",  "faccessat2", "stat",
    "lstat", "readlink", "readlinkat", "statfs",     "getcwd",
};
static const char *const calls_refused_sockets[] = {"socket", "connect", "bind", "socketpair"};

/* For builds with sanitizers only, which read /proc and trace their own process at its end. */
static const char *const calls_sanitizers[] = {
    "getdents",
    "open",
    "openat",
    "readlink",
    "readlinkat",
    "stat",
    "lstat",
    "access",
    "getcwd",
    "getdents64",
    "clone",
    "clone3",
    "ptrace",
    "wait4",
    "prctl",
    "mmap",
    "mprotect",
    "sched_getaffinity",
    "getppid",
    "kill",
    "tgkill",
    "prlimit64",
    "arch_prctl",
    "pipe",
    "process_vm_readv",
    "mincore",
    "set_tid_address",
};

/* Calls that no user's command needs. The kernel permits most of them only to root. */
static const char *const calls_administration[] = {
    "acct",
    "add_key",
    "bpf",
    "clock_adjtime",
    "clock_settime",
    "delete_module",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "init_module",
    "ioperm",
    "iopl",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_by_handle_at",
    "open_tree",
    "perf_event_open",
    "pivot_root",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "quotactl",
    "reboot",
    "request_key",
    "setdomainname",
    "sethostname",
    "settimeofday",
    "swapoff",
    "swapon",
    "umount2",
    "userfaultfd",
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Adds calls; skips names that this architecture does not have (open, stat, ... on arm64). */
static int add_calls(scmp_filter_ctx filter, uint32_t action, const char *const *names,
                     size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int call = seccomp_syscall_resolve_name(names[i]);
        int error = call < 0 ? 0 : seccomp_rule_add(filter, action, call, 0);

        if (error != 0 && error != -EEXIST) {
            return error;
        }
    }
    return 0;
}

/* Adds a call with a condition on one argument. Returns an earlier `error` unchanged, so that a
 * list of these needs one test at its end. */
static int add_if(int error, scmp_filter_ctx filter, uint32_t action, int call,
                  struct scmp_arg_cmp condition)
{
    return error != 0 ? error : seccomp_rule_add_array(filter, action, call, 1, &condition);
}

/* Adds calls that send. Data in a SYN would connect to ports that Landlock refuses to connect(2);
 * libunbound goes on with connect(2) after this error. */
static int add_sending(scmp_filter_ctx filter)
{
    static const struct {
        int call;
        unsigned flags; /* number of the argument */
    } calls[] = {{SCMP_SYS(sendto), 3}, {SCMP_SYS(sendmsg), 2}, {SCMP_SYS(sendmmsg), 3}};
    int error = 0;

    for (size_t i = 0; i < COUNT(calls); i++) {
        const struct scmp_arg_cmp fast = {calls[i].flags, SCMP_CMP_MASKED_EQ, MSG_FASTOPEN,
                                          MSG_FASTOPEN};
        const struct scmp_arg_cmp usual = {calls[i].flags, SCMP_CMP_MASKED_EQ, MSG_FASTOPEN, 0};

        error = add_if(error, filter, SCMP_ACT_ERRNO(EOPNOTSUPP), calls[i].call, fast);
        error = add_if(error, filter, SCMP_ACT_ALLOW, calls[i].call, usual);
    }
    return error;
}

/* Adds calls whose arguments are restricted. */
static int add_arguments(scmp_filter_ctx filter, const struct confine *plan)
{
    static const char *const any_code[] = {"mmap", "mprotect"};
    static const unsigned ioctls[] = {FIONREAD, FIONBIO, 0x5401 /* TCGETS: is it a terminal? */,
                                      SIOCGIFINDEX /* a name server fe80::1%eth0 */};
    const struct scmp_arg_cmp no_code = {2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0};
    const struct scmp_arg_cmp ourselves = {0, SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0};
    const struct scmp_arg_cmp no_new_limit = {2, SCMP_CMP_EQ, 0, 0};
    const struct scmp_arg_cmp no_signal = {1, SCMP_CMP_EQ, 0, 0};
    int error = add_sending(filter);

    if (error == 0 && plan->foreign_files) {
        error = add_calls(filter, SCMP_ACT_ALLOW, calls_foreign_files, COUNT(calls_foreign_files));
        if (!SANITIZED) {
            error = add_if(error, filter, SCMP_ACT_ALLOW, SCMP_SYS(kill), no_signal);
        }
    }
    if (error != 0) {
        return error;
    }
    if (plan->remote_spool) {
        error = add_calls(filter, SCMP_ACT_ALLOW, calls_database, COUNT(calls_database));
    }
    if (SANITIZED || plan->remote_spool) {
        error = add_calls(filter, SCMP_ACT_ALLOW, any_code, COUNT(any_code));
    } else {
        /* No new code: no memory becomes executable. */
        error = add_if(error, filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), no_code);
        error = add_if(error, filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), no_code);
    }
    if (!SANITIZED) {
        /* abort(3) signals only this process. */
        error = add_if(error, filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), ourselves);
        error = add_if(error, filter, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), no_new_limit);
    }
    for (size_t i = 0; i < COUNT(ioctls); i++) {
        const struct scmp_arg_cmp request = {1, SCMP_CMP_EQ, ioctls[i], 0};
        error = add_if(error, filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), request);
    }
    return error;
}

/* Adds calls for new sockets. Landlock does not restrict connections to Unix sockets, where a
 * user's whole session and our own control_socket listen, nor streams other than TCP (MPTCP, SCTP).
 * It does not restrict UDP either, whose destinations a filter of system calls can't see; and a UDP
 * socket passed from the parent can be connected elsewhere. So only resolve has datagrams (and
 * libpq, which looks up its server's name): it queries name servers for the processes that connect
 * to sites. Those can't query by TCP alone: dnsmasq, which most routers run, answers the queries of
 * a connection one after the other, so that domains with dead servers delay all others. */
static int add_sockets(scmp_filter_ctx filter, bool unix_sockets, bool datagrams)
{
    static const unsigned families[] = {AF_INET, AF_INET6}, tcp[] = {0, IPPROTO_TCP};
    /* Ignores SOCK_CLOEXEC and SOCK_NONBLOCK. */
    const struct scmp_arg_cmp stream = {1, SCMP_CMP_MASKED_EQ, 0xff, SOCK_STREAM};
    const struct scmp_arg_cmp other_protocol = {2, SCMP_CMP_GT, IPPROTO_TCP, 0};
    const struct scmp_arg_cmp datagram = {1, SCMP_CMP_MASKED_EQ, 0xff, SOCK_DGRAM};
    const struct scmp_arg_cmp unix_family = {0, SCMP_CMP_EQ, AF_UNIX, 0};
    /* Netlink, which getaddrinfo tries, and all newer families. */
    const struct scmp_arg_cmp other_family = {0, SCMP_CMP_GT, AF_INET6, 0};
    int error = add_calls(filter, SCMP_ACT_ALLOW, calls_connect, COUNT(calls_connect));

    for (size_t i = 0; i < COUNT(families); i++) {
        const struct scmp_arg_cmp family = {0, SCMP_CMP_EQ, families[i], 0};

        for (size_t k = 0; error == 0 && k < COUNT(tcp); k++) {
            const struct scmp_arg_cmp protocol = {2, SCMP_CMP_EQ, tcp[k], 0};

            error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 3, family, stream,
                                     protocol);
        }
        error = error != 0 ? error
                           : seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socket), 3,
                                              family, stream, other_protocol);
        error = error != 0
                    ? error
                    : seccomp_rule_add(filter, datagrams ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EACCES),
                                       SCMP_SYS(socket), 2, family, datagram);
    }
    error = add_if(error, filter, unix_sockets ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EACCES),
                   SCMP_SYS(socket), unix_family);
    return add_if(error, filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socket), other_family);
}

/* Adds calls on files by name. */
static int add_files(scmp_filter_ctx filter, enum wire_role role)
{
    const struct scmp_arg_cmp to_read = {2, SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC,
                                         O_RDONLY};
    int error;

    if (role == ROLE_QUEUE) {
        return add_calls(filter, SCMP_ACT_ALLOW, calls_files, COUNT(calls_files));
    }
    if (role == ROLE_PICKUP) {
        error = add_calls(filter, SCMP_ACT_ALLOW, calls_maildrop, COUNT(calls_maildrop));
        if (!SANITIZED) {
            error = add_if(error, filter, SCMP_ACT_ALLOW, SCMP_SYS(openat), to_read);
        }
    } else {
        error =
            SANITIZED ? 0 : seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(openat), 0);
    }
    return error != 0 || SANITIZED ? error
                                   : add_calls(filter, SCMP_ACT_ERRNO(EACCES), calls_refused_files,
                                               COUNT(calls_refused_files));
}

static int add_rules(scmp_filter_ctx filter, const struct confine *plan)
{
    bool sockets = plan->role == ROLE_DELIVER || has_ports(plan) || plan->remote_spool;
    bool accepts = plan->role == ROLE_RECEIVE || plan->role == ROLE_CONTROL;
    int error = add_calls(filter, SCMP_ACT_ALLOW, calls_common, COUNT(calls_common));

    error = error != 0 ? error : add_arguments(filter, plan);
    if (error == 0 && SANITIZED) {
        error = add_calls(filter, SCMP_ACT_ALLOW, calls_sanitizers, COUNT(calls_sanitizers));
    }
    if (error == 0 && (accepts || plan->local_services)) {
        error = add_calls(filter, SCMP_ACT_ALLOW, calls_accept, COUNT(calls_accept));
    }
    error = error != 0 ? error : add_files(filter, plan->role);
    if (error == 0 && plan->local_services) {
        const struct scmp_arg_cmp local = {0, SCMP_CMP_EQ, AF_UNIX, 0};
        const struct scmp_arg_cmp other = {0, SCMP_CMP_NE, AF_UNIX, 0};

        error = add_calls(filter, SCMP_ACT_ALLOW, calls_connect, COUNT(calls_connect));
        error = add_if(error, filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), local);
        return add_if(error, filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socket), other);
    }
    if (error == 0) {
        error = sockets ? add_sockets(filter, plan->unix_sockets || plan->remote_spool,
                                      plan->role == ROLE_RESOLVE || plan->remote_spool)
                        : add_calls(filter, SCMP_ACT_ERRNO(EACCES), calls_refused_sockets,
                                    COUNT(calls_refused_sockets));
    }
    if (error == 0 && is_caller(plan)) { /* libcurl tries a pair, and works without */
        error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socketpair), 0);
    }
    return error;
}

/* Handles SIGSYS; uses only async-signal-safe calls that are on the lists. */
static void on_refused_call(int signal_number, siginfo_t *info, void *context)
{
    char text[] = "panic: system call       is on no list of this role\n";
    char *digit = text + strlen("panic: system call     ");

    (void)signal_number;
    (void)context;
    for (int call = info->si_syscall; call > 0; call /= 10) {
        *digit-- = (char)('0' + call % 10);
    }
    /* The process ends either way. */
    _exit(write(STDERR_FILENO, text, sizeof text - 1) < 0 ? EX_OSERR : EX_SOFTWARE);
}

static uint32_t refusal(void)
{
    const char *wish = getenv("SLUICE_SECCOMP");
    struct sigaction action = {.sa_flags = SA_SIGINFO, .sa_sigaction = on_refused_call};

    if (wish == NULL || strcmp(wish, "trap") != 0) {
        return SCMP_ACT_KILL_PROCESS;
    }
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    return SCMP_ACT_TRAP;
}

/* May this process set a filter without no_new_privs? The kernel requires CAP_SYS_ADMIN, which root
 * in a container or under a service manager often lacks. */
static bool may_go_without_nnp(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

    CHECK(syscall(SYS_capget, &header, data) == 0);
    return (data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)) != 0;
}

static bool enter_filter(const struct confine *plan, struct buf *error)
{
    bool local = plan->role == ROLE_LOCAL || plan->role == ROLE_AGENTS;
    scmp_filter_ctx filter = seccomp_init(local ? SCMP_ACT_ALLOW : refusal());
    int result;

    if (filter == NULL) {
        errno = ENOMEM;
        return fail(error, "seccomp_init");
    }
    if (local) {
        /* The leak checker traces its own process. */
        result = SANITIZED ? 0
                           : add_calls(filter, SCMP_ACT_ERRNO(EPERM), calls_administration,
                                       COUNT(calls_administration));
        if (result == 0 && geteuid() == 0) {
            result = seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, 0);
        }
    } else {
        result = add_rules(filter, plan);
    }
    if (result == 0) {
        result = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a search tree */
    }
    if (result == 0) {
        result = seccomp_load(filter);
    }
    seccomp_release(filter);
    errno = -result;
    return result == 0 || fail(error, "the filter of system calls");
}

/* Does the role read data from the network? */
static bool talks_to_network(const struct confine *plan)
{
    switch (plan->role) {
    case ROLE_RECEIVE:
    case ROLE_FILTER:
    case ROLE_DELIVER:
    case ROLE_FETCH:
    case ROLE_HOOK:
    case ROLE_RESOLVE:
    case ROLE_CONTROL:
    case ROLE_AUTH:
    case ROLE_WHATIF:
        return true;
    case ROLE_QUEUE:
        return plan->remote_spool;
    case ROLE_PARENT:
    case ROLE_LOCAL:
    case ROLE_AGENTS:
    case ROLE_PICKUP:
    case ROLE_COUNT:
        return false;
    }
    return true;
}

/* Prevents other processes of the same user from reading or tracing this one, which has passwords
 * and mail. */
static bool hide_memory(struct buf *error)
{
    return getenv("SLUICE_CORE") != NULL || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 ||
           fail(error, "PR_SET_DUMPABLE");
}

bool confine_process(const struct confine *plan, struct buf *ret_error)
{
    CHECK(plan->role != ROLE_PARENT);
    if (plan->role == ROLE_LOCAL || plan->role == ROLE_AGENTS) {
        if (geteuid() == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 &&
            !may_go_without_nnp()) {
            return true; /* the refused calls need capabilities that this process lacks */
        }
        return enter_filter(plan, ret_error);
    }
    if (!enter_root(plan, ret_error) || !hide_memory(ret_error)) {
        return false;
    }
    if (geteuid() == 0 && talks_to_network(plan)) {
        (void)buf_addf(ret_error,
                       "confining this process: %s talks to the network and would be "
                       "root; expected another user (mail_owner, receive_user or "
                       "deliver_user)",
                       wire_role_name(plan->role)); /* sticky */
        return false;
    }
    if ((plan->foreign_files || plan->role == ROLE_PICKUP) && geteuid() == 0 &&
        !drop_capabilities(plan, ret_error)) {
        return false;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return fail(ret_error, "no_new_privs");
    }
    return enter_landlock(plan, ret_error) && enter_filter(plan, ret_error);
}
