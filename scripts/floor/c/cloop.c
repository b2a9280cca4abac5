// The floor: only the system calls that are needed to read every file of a directory.
//
//   cloop DIR
//
// Each line on standard input, "MODE SIZE THREADS", runs one pass and prints "WALL_NS CPU_NS FILES BYTES" or
// "error: …". A pass lists DIR, with its subdirectories, into memory and then reads with THREADS threads.
// Modes: read (open, one read of SIZE bytes, close), stat (fstatat) and names (list only DIR, with one buffer).
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LISTING = 1 << 20, BATCH = 128, MAX_THREADS = 1024, MAX_READ = 1 << 20 };

struct entry { unsigned long long ino; long long off; unsigned short reclen; unsigned char type; char name[]; };
struct block { struct block *next; char data[LISTING]; };
struct file { int dir; const char *name; };

static struct block *blocks; // the listings; names point into them
static struct file *files;
static size_t nfiles, files_cap;
static int *dirs;            // open while the pass runs
static size_t ndirs, dirs_cap;

static size_t read_size;     // 0: fstatat
static atomic_size_t next_file;
static atomic_llong total;

static pthread_mutex_t failing = PTHREAD_MUTEX_INITIALIZER;
static char failure[512];    // the first one of a pass; guarded by failing
static atomic_int failed;

static void fail(const char *what, const char *name) {
	int err = errno;
	pthread_mutex_lock(&failing);
	if (!failed) snprintf(failure, sizeof failure, "%s %s: %s", what, name, strerror(err));
	failed = 1;
	pthread_mutex_unlock(&failing);
}

static void *grown(void *array, size_t n, size_t *cap, size_t size) {
	if (n < *cap) return array;
	*cap = *cap ? *cap * 2 : 1024;
	array = realloc(array, *cap * size);
	if (!array) { perror("realloc"); exit(1); }
	return array;
}

static int open_dir(int at, const char *name) {
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) { fail("openat", name); return -1; }
	dirs = grown(dirs, ndirs, &dirs_cap, sizeof *dirs);
	dirs[ndirs++] = fd;
	return fd;
}

static void add(int dir, struct entry *e) {
	if (e->type == DT_REG) {
		files = grown(files, nfiles, &files_cap, sizeof *files);
		files[nfiles++] = (struct file){dir, e->name};
	} else if (e->type == DT_DIR && strcmp(e->name, ".") && strcmp(e->name, "..")) {
		open_dir(dir, e->name);
	} else if (e->type == DT_UNKNOWN) {
		errno = ENOTSUP;
		fail("the file system reports no type for", e->name);
	}
}

// list reads every directory in dirs, to which it adds the subdirectories that it finds.
static void list(void) {
	struct block *b = NULL;
	size_t used = LISTING;
	for (size_t d = 0; d < ndirs && !failed; d++) {
		for (;;) {
			if (LISTING - used < 32 << 10) {
				b = malloc(sizeof *b);
				if (!b) { perror("malloc"); exit(1); }
				b->next = blocks, blocks = b, used = 0;
			}
			long n = syscall(SYS_getdents64, dirs[d], b->data + used, LISTING - used);
			if (n < 0) fail("getdents64", "directory");
			if (n <= 0) break;
			for (char *p = b->data + used, *end = p + n; p < end; p += ((struct entry *)p)->reclen)
				add(dirs[d], (struct entry *)p);
			used += (n + 7) & ~7L;
		}
	}
}

static void count_names(void) {
	static char buf[LISTING] __attribute__((aligned(8)));
	long n;
	while ((n = syscall(SYS_getdents64, dirs[0], buf, sizeof buf)) > 0)
		for (char *p = buf; p < buf + n; p += ((struct entry *)p)->reclen) nfiles++;
	if (n < 0) fail("getdents64", "directory");
	nfiles -= 2; // . and ..
}

static long long one(struct file *f, char *buf) {
	if (!read_size) {
		struct stat st;
		if (fstatat(f->dir, f->name, &st, AT_SYMLINK_NOFOLLOW)) { fail("fstatat", f->name); return 0; }
		return st.st_size;
	}
	int fd = openat(f->dir, f->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) { fail("openat", f->name); return 0; }
	ssize_t n = read(fd, buf, read_size);
	if (n < 0) { fail("read", f->name); n = 0; }
	close(fd);
	return n;
}

static void *work(void *unused) {
	(void)unused;
	long long sum = 0;
	char *buf = malloc(MAX_READ);
	if (!buf) { perror("malloc"); exit(1); }
	for (size_t i; (i = atomic_fetch_add(&next_file, BATCH)) < nfiles && !failed;)
		for (size_t end = i + BATCH < nfiles ? i + BATCH : nfiles; i < end; i++) sum += one(&files[i], buf);
	free(buf);
	total += sum;
	return NULL;
}

static void run_threads(int n) {
	pthread_t threads[MAX_THREADS];
	for (int i = 0; i < n; i++)
		if ((errno = pthread_create(&threads[i], NULL, work, NULL))) { perror("pthread_create"); exit(1); }
	for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

static void release(void) {
	for (size_t i = 0; i < ndirs; i++) close(dirs[i]);
	for (struct block *b; (b = blocks); free(b)) blocks = b->next;
	free(files), free(dirs);
	files = NULL, dirs = NULL;
	nfiles = files_cap = ndirs = dirs_cap = 0;
}

static long long wall_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long long cpu_ns(void) {
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000LL + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000LL;
}

int main(int argc, char **argv) {
	char mode[16];
	size_t size;
	int threads;
	if (argc != 2) { fprintf(stderr, "usage: cloop DIR\n"); return 2; }
	// Every directory stays open until its files are read.
	struct rlimit lim;
	if (!getrlimit(RLIMIT_NOFILE, &lim)) { lim.rlim_cur = lim.rlim_max; setrlimit(RLIMIT_NOFILE, &lim); }

	while (scanf("%15s %zu %d", mode, &size, &threads) == 3) {
		int names = !strcmp(mode, "names"), reads = !strcmp(mode, "read");
		if ((!names && !reads && strcmp(mode, "stat")) || threads < 1 || threads > MAX_THREADS ||
		    (reads && size < 1) || size > MAX_READ) {
			fprintf(stderr, "bad command\n");
			return 2;
		}
		long long wall = wall_ns(), cpu = cpu_ns();
		read_size = reads ? size : 0;
		next_file = 0;
		total = 0;
		failed = 0;
		if (open_dir(AT_FDCWD, argv[1]) >= 0) {
			if (names) {
				count_names();
			} else {
				list();
				run_threads(threads);
			}
		}
		size_t count = nfiles;
		release();
		wall = wall_ns() - wall, cpu = cpu_ns() - cpu;
		if (failed) printf("error: %s\n", failure);
		else printf("%lld %lld %zu %lld\n", wall, cpu, count, (long long)total);
		fflush(stdout);
	}
	return 0;
}
