// The floor: only the system calls that are needed to read every file of a directory.
//
//   cloop DIR
//
// Each line on standard input, "MODE SIZE THREADS", runs one pass and prints "WALL_NS CPU_NS FILES BYTES". A pass lists DIR, with
// its subdirectories, into memory and then reads with THREADS threads. After a failure it prints "error: …" and exits.
// Modes: read (open, one read of SIZE bytes, close), whole (reads of SIZE bytes until a short one), sized (open, fstat, one read of
// all, which is at most SIZE bytes, close), stat (fstatat; SIZE is 0) and names (list only DIR, with one buffer).
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 1 << 20, BATCH = 128, MAX_THREADS = 1024, MAX_DIRS = 1 << 20, MAX_FILES = 10 << 20 };

struct entry { unsigned long long ino; long long off; unsigned short reclen; unsigned char type; char name[]; };
struct file { int dir; struct entry *entry; };

// The memory that a pass uses. The next pass has it again, as a Go program has its heap.
static char listing[512 << 20] __attribute__((aligned(8)));
static struct file files[MAX_FILES];
static int dirs[MAX_DIRS]; // open while the pass runs
static size_t nfiles, ndirs;

static int whole, sized; // read on until a short read; ask for the size, and read that
static size_t batch;     // files that a thread takes at once: one where they are few
static size_t read_size; // 0: fstatat
static atomic_size_t next_file;
static atomic_llong total;

static void die(const char *what, const char *name) {
	printf("error: %s %s: %s\n", what, name, strerror(errno));
	fflush(stdout);
	_exit(1);
}

static void full(int yes, const char *what) {
	if (yes) errno = ENOMEM, die("too many", what);
}

static void open_dir(int at, const char *name) {
	full(ndirs == MAX_DIRS, "directories");
	if ((dirs[ndirs++] = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) die("openat", name);
}

static long getdents(int dir, char *buf, size_t size) {
	long n = syscall(SYS_getdents64, dir, buf, size);
	if (n < 0) die("getdents64", "directory");
	return n;
}

// list reads every directory in dirs, to which it adds the subdirectories that it finds.
static void list(void) {
	size_t used = 0;
	for (size_t d = 0; d < ndirs; d++) {
		for (long n;; used += (n + 7) & ~7L) {
			full(sizeof listing - used < BUFFER, "names");
			if (!(n = getdents(dirs[d], listing + used, BUFFER))) break;
			struct entry *e;
			for (char *p = listing + used, *end = p + n; p < end; p += e->reclen) {
				e = (struct entry *)p;
				full(nfiles == MAX_FILES, "files");
				if (e->type == DT_REG) files[nfiles++] = (struct file){dirs[d], e};
				else if (e->type == DT_DIR && strcmp(e->name, ".") && strcmp(e->name, "..")) open_dir(dirs[d], e->name);
				else if (e->type == DT_UNKNOWN) errno = ENOTSUP, die("the file system reports no type for", e->name);
			}
		}
	}
}

static void count_names(void) {
	for (long n; (n = getdents(dirs[0], listing, BUFFER));)
		for (char *p = listing; p < listing + n; p += ((struct entry *)p)->reclen) nfiles++;
	nfiles -= 2; // . and ..
}

static long long one(struct file *f, char *buf) {
	const char *name = f->entry->name;
	struct stat st;
	if (!read_size) {
		if (fstatat(f->dir, name, &st, AT_SYMLINK_NOFOLLOW)) die("fstatat", name);
		return st.st_size;
	}
	int fd = openat(f->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) die("openat", name);
	size_t size = read_size;
	if (sized) {
		if (fstat(fd, &st)) die("fstat", name);
		if ((size = st.st_size) > read_size) errno = EFBIG, die("read", name);
	}
	size_t sum = 0;
	ssize_t n;
	do {
		if ((n = read(fd, sized ? buf + sum : buf, sized ? size - sum : size)) < 0) die("read", name);
		sum += n;
	} while (sized ? n && sum < size : whole && n == (ssize_t)size);
	close(fd);
	return sum;
}

static void *work(void *unused) {
	char *buf = malloc(read_size + 1);
	if (!buf) die("malloc", "");
	long long sum = 0;
	for (size_t i; (i = atomic_fetch_add(&next_file, batch)) < nfiles;)
		for (size_t end = i + batch < nfiles ? i + batch : nfiles; i < end; i++) sum += one(&files[i], buf);
	free(buf);
	total += sum;
	return unused;
}

static void run_threads(int n) {
	pthread_t threads[MAX_THREADS];
	full(n > MAX_THREADS, "threads");
	batch = nfiles / (8 * n) + 1 < BATCH ? nfiles / (8 * n) + 1 : BATCH;
	for (int i = 0; i < n; i++)
		if ((errno = pthread_create(&threads[i], NULL, work, NULL))) die("pthread_create", "");
	for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

static long long ns(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv) {
	char mode[16];
	int threads;
	if (argc != 2) { fprintf(stderr, "usage: cloop DIR\n"); return 2; }
	// Every directory stays open until its files are read.
	struct rlimit lim;
	if (!getrlimit(RLIMIT_NOFILE, &lim)) { lim.rlim_cur = lim.rlim_max; setrlimit(RLIMIT_NOFILE, &lim); }

	while (scanf("%15s %zu %d", mode, &read_size, &threads) == 3) {
		long long wall = ns(CLOCK_MONOTONIC), cpu = ns(CLOCK_PROCESS_CPUTIME_ID);
		whole = !strcmp(mode, "whole"), sized = !strcmp(mode, "sized");
		nfiles = ndirs = next_file = total = 0;
		open_dir(AT_FDCWD, argv[1]);
		if (!strcmp(mode, "names")) {
			count_names();
		} else {
			list();
			run_threads(threads);
		}
		for (size_t i = 0; i < ndirs; i++) close(dirs[i]);
		wall = ns(CLOCK_MONOTONIC) - wall, cpu = ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
		printf("%lld %lld %zu %lld\n", wall, cpu, nfiles, (long long)total);
		fflush(stdout);
	}
	return 0;
}
