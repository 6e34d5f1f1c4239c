/* Preloaded into a process: writes to files below a folder, and what brings them to the disk, fail as a file says, which is
 * mapped, so that another value is another disk at once. Bits: 1 writes fail, 2 syncs fail, 4 writes stop halfway and fail.
 *
 *   cc -shared -fPIC -o failing_disk.so failing_disk.c
 *   FAILING_DISK_FAULTS=FILE FAILING_DISK_FOLDER=FOLDER LD_PRELOAD=failing_disk.so PROGRAM
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WRITES 1
#define SYNCS 2
#define TEARS 4

static volatile const int64_t *faults;
static const char *folder;

__attribute__((constructor)) static void map_faults(void)
{
	const char *path = getenv("FAILING_DISK_FAULTS");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	folder = getenv("FAILING_DISK_FOLDER");
	if (file < 0 || !folder)
		return;
	void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
	if (mapped != MAP_FAILED)
		faults = mapped;
	close(file);
}

/* Which of these faults a file has now. */
static int64_t fault(int fd, int64_t of)
{
	char link[40], path[PATH_MAX];
	ssize_t len;

	if (!faults || !(*faults & of))
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	if (len < 0 || strncmp(path, folder, strlen(folder)))
		return 0;
	return *faults & of;
}

static ssize_t failed(void)
{
	errno = EIO;
	return -1;
}

ssize_t write(int fd, const void *octets, size_t count)
{
	int64_t found = fault(fd, WRITES | TEARS);

	if (found & TEARS)
		syscall(SYS_write, fd, octets, count / 2);
	return found ? failed() : syscall(SYS_write, fd, octets, count);
}

ssize_t pwrite64(int fd, const void *octets, size_t count, off_t at)
{
	int64_t found = fault(fd, WRITES | TEARS);

	if (found & TEARS)
		syscall(SYS_pwrite64, fd, octets, count / 2, at);
	return found ? failed() : syscall(SYS_pwrite64, fd, octets, count, at);
}

ssize_t pwrite(int fd, const void *octets, size_t count, off_t at)
{
	return pwrite64(fd, octets, count, at);
}

int fsync(int fd)
{
	return fault(fd, SYNCS) ? (int)failed() : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	return fault(fd, SYNCS) ? (int)failed() : (int)syscall(SYS_fdatasync, fd);
}
