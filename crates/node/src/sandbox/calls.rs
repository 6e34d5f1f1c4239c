//! System calls by what they are for, and which of them each kind of thread may use.

use libc::c_long;
use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::Calls;

/// What every thread needs to live: time, memory, locks, signals, its end.
const THREAD: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_prctl,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
];

/// Descriptors that are there: sockets, pipes, files, devices.
const DESCRIPTORS: &[c_long] = &[
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_fcntl,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_lseek,
    // A line of the log that is longer than a datagram.
    libc::SYS_memfd_create,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_write,
    libc::SYS_writev,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Many descriptors at once, and connections that come.
const CONNECTIONS: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];

/// Sockets are made, those of Unix with files.
const SOCKETS: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_listen,
    libc::SYS_newfstatat,
    libc::SYS_socket,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

/// Files are opened and read.
const READING: &[c_long] = &[
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fstat,
    libc::SYS_getdents64,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_readlinkat,
    libc::SYS_statx,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
];

/// Files and folders are made, written, and brought to the disk.
const WRITING: &[c_long] = &[
    libc::SYS_copy_file_range,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_linkat,
    libc::SYS_mkdirat,
    libc::SYS_msync,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_sync_file_range,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

/// Sockets, devices and programs are made, memory is locked and placed, the node's limits are read and raised.
const SETTING_UP: &[c_long] = &[
    libc::SYS_bpf,
    libc::SYS_capset,
    libc::SYS_dup3,
    libc::SYS_get_mempolicy,
    libc::SYS_getcwd,
    libc::SYS_getgroups,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_ioctl,
    libc::SYS_mbind,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_perf_event_open,
    libc::SYS_pipe2,
    libc::SYS_prlimit64,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_setscheduler,
    libc::SYS_seccomp,
    libc::SYS_set_mempolicy,
    libc::SYS_setpriority,
    libc::SYS_setrlimit,
    libc::SYS_signalfd4,
    libc::SYS_socketpair,
    libc::SYS_sysinfo,
    libc::SYS_timerfd_gettime,
    libc::SYS_uname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pipe,
];

/// Threads, and the process that takes over.
const PROCESSES: &[c_long] = &[
    libc::SYS_chdir,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close_range,
    libc::SYS_execve,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_kill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_set_tid_address,
    libc::SYS_setsid,
    libc::SYS_wait4,
    libc::SYS_waitid,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// Calls that may do some things where they may not do all: the number of the argument that says what, and what it may say.
const IN_PART: [(c_long, u8, &[u64]); 2] = [
    // Descriptors wait or do not, and go over to another program or do not. Is it a terminal? What number has an interface?
    (libc::SYS_ioctl, 1, &[libc::FIONBIO, libc::FIOCLEX, libc::FIONREAD, libc::TCGETS, libc::SIOCGIFINDEX]),
    // Counters of programs are read: BPF_MAP_LOOKUP_ELEM, BPF_MAP_GET_NEXT_KEY, BPF_OBJ_GET_INFO_BY_FD, BPF_MAP_LOOKUP_BATCH. A frame
    // that is the kernel's is given back by a program: BPF_PROG_TEST_RUN.
    (libc::SYS_bpf, 0, &[1, 4, 10, 15, 24]),
];

/// Those calls, each with rules of which one must be met.
pub(super) fn in_part() -> impl Iterator<Item = Result<(c_long, Vec<SeccompRule>), BackendError>> {
    IN_PART.into_iter().map(|(call, argument, values)| {
        let rule = |&value| {
            let is_that = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
            SeccompRule::new(vec![is_that])
        };
        Ok((call, values.iter().map(rule).collect::<Result<_, _>>()?))
    })
}

/// A thread that forwards packets.
pub(super) const WORKER: Calls = &[THREAD, DESCRIPTORS];
/// One that has faces of NDN.
pub(super) const FACE_WORKER: Calls = &[THREAD, DESCRIPTORS, CONNECTIONS, SOCKETS];
/// The thread that answers clients of the API.
pub(super) const HTTP: Calls = &[THREAD, DESCRIPTORS, CONNECTIONS, READING];
/// All that any thread of a node needs.
pub(super) const PROCESS: Calls =
    &[THREAD, DESCRIPTORS, CONNECTIONS, SOCKETS, READING, WRITING, SETTING_UP, PROCESSES];
