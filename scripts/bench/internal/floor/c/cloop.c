// The floor: only the system calls that are needed to read every file of a directory.
//
//   cloop DIR
//
// Each line on standard input, "MODE SIZE THREADS", runs one pass and prints "WALL_NS CPU_NS FILES BYTES" or
// "error: …". A pass lists DIR, with its subdirectories, into memory and then reads with THREADS threads.
// Modes: read (open, one read of SIZE bytes, close), whole (reads of SIZE bytes until a short one), order (the same in the order
// of the inodes, the first reads of WINDOW files in one io_uring submission), stat (fstatat), stat-order (the same in the order
// of the inodes) and names (list only DIR, with one buffer).
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif

enum { LISTING = 1 << 20, BATCH = 128, WINDOW = 256, MAX_THREADS = 1024, MAX_READ = 1 << 20 };

struct entry { unsigned long long ino; long long off; unsigned short reclen; unsigned char type; char name[]; };
struct block { struct block *next; char data[LISTING]; };
struct file { int dir; const char *name; };

static struct block *blocks; // the listings; names point into them
static struct file *files;
static size_t nfiles, files_cap;
static int *dirs;            // open while the pass runs
static size_t ndirs, dirs_cap;

static size_t read_size;     // 0: fstatat
static int whole;            // read on until a short read
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

static int open_file(struct file *f) {
	int fd = openat(f->dir, f->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) fail("openat", f->name);
	return fd;
}

// read_on reads what follows the first n bytes, unless they are the end.
static long long read_on(struct file *f, int fd, char *buf, ssize_t n) {
	long long sum = n;
	while (whole && n == (ssize_t)read_size) {
		n = pread(fd, buf, read_size, sum);
		if (n < 0) { fail("pread", f->name); return sum; }
		sum += n;
	}
	return sum;
}

static long long one(struct file *f, char *buf) {
	if (!read_size) {
		struct stat st;
		if (fstatat(f->dir, f->name, &st, AT_SYMLINK_NOFOLLOW)) { fail("fstatat", f->name); return 0; }
		return st.st_size;
	}
	int fd = open_file(f);
	if (fd < 0) return 0;
	ssize_t n = read(fd, buf, read_size);
	if (n < 0) { fail("read", f->name); n = 0; }
	long long sum = read_on(f, fd, buf, n);
	close(fd);
	return sum;
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

static unsigned long long inode(const struct file *f) {
	return ((struct entry *)(f->name - offsetof(struct entry, name)))->ino;
}

static int by_inode(const void *a, const void *b) {
	unsigned long long x = inode(a), y = inode(b);
	return (x > y) - (x < y);
}

#ifdef IORING_OFF_SQES
struct ring {
	int fd;
	char *sq, *cq; // with IORING_FEAT_SINGLE_MMAP the same
	struct io_uring_params p;
	struct io_uring_sqe *sqes;
	size_t size, sqes_size;
};

static int ring_open(struct ring *r) {
	memset(r, 0, sizeof *r);
	r->fd = syscall(SYS_io_uring_setup, WINDOW, &r->p);
	if (r->fd < 0) { fail("io_uring_setup", ""); return -1; }
	if (!(r->p.features & IORING_FEAT_SINGLE_MMAP)) { errno = ENOSYS; fail("io_uring", "of Linux 5.4"); close(r->fd); return -1; }
	size_t sq = r->p.sq_off.array + r->p.sq_entries * sizeof(unsigned);
	size_t cq = r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe);
	r->size = sq > cq ? sq : cq, r->sqes_size = r->p.sq_entries * sizeof *r->sqes;
	r->sq = r->cq = mmap(NULL, r->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQ_RING);
	r->sqes = mmap(NULL, r->sqes_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQES);
	if (r->sq == MAP_FAILED || r->sqes == MAP_FAILED) { perror("mmap"); exit(1); }
	return 0;
}

static void ring_close(struct ring *r) {
	munmap(r->sq, r->size), munmap(r->sqes, r->sqes_size);
	close(r->fd);
}

// ring_read reads the beginning of n files in one submission, and sets each size or error. The kernel can merge requests for
// neighbouring blocks until the submission ends.
static void ring_read(struct ring *r, const int *fds, char *buf, int n, int *sizes) {
	unsigned *tail = (unsigned *)(r->sq + r->p.sq_off.tail), *array = (unsigned *)(r->sq + r->p.sq_off.array);
	unsigned *head = (unsigned *)(r->cq + r->p.cq_off.head), *end = (unsigned *)(r->cq + r->p.cq_off.tail);
	struct io_uring_cqe *cqes = (struct io_uring_cqe *)(r->cq + r->p.cq_off.cqes);
	for (int i = 0; i < n; i++) {
		r->sqes[i] = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = fds[i], .addr = (unsigned long)(buf + i * read_size),
			.len = read_size, .user_data = i};
		array[(*tail + i) & (r->p.sq_entries - 1)] = i;
	}
	__atomic_store_n(tail, *tail + n, __ATOMIC_RELEASE);
	for (int sent = 0, done = 0; done < n;) {
		int k = syscall(SYS_io_uring_enter, r->fd, n - sent, n - done, IORING_ENTER_GETEVENTS, NULL, 0);
		if (k < 0 && errno != EINTR) { perror("io_uring_enter"); exit(1); }
		if (k > 0) sent += k;
		for (; *head != __atomic_load_n(end, __ATOMIC_ACQUIRE); done++) {
			struct io_uring_cqe *c = &cqes[*head & (r->p.cq_entries - 1)];
			sizes[c->user_data] = c->res;
			__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
		}
	}
}

static void *work_in_order(void *unused) {
	(void)unused;
	struct ring r;
	if (ring_open(&r)) return NULL;
	char *buf = malloc(WINDOW * read_size);
	if (!buf) { perror("malloc"); exit(1); }
	long long sum = 0;
	for (size_t i; (i = atomic_fetch_add(&next_file, WINDOW)) < nfiles && !failed;) {
		int n = i + WINDOW < nfiles ? WINDOW : nfiles - i, fds[WINDOW], sizes[WINDOW];
		for (int k = 0; k < n; k++)
			if ((fds[k] = open_file(&files[i + k])) < 0) n = k;
		ring_read(&r, fds, buf, n, sizes);
		for (int k = 0; k < n; k++) {
			if (sizes[k] < 0) { errno = -sizes[k]; fail("read", files[i + k].name); sizes[k] = 0; }
			sum += read_on(&files[i + k], fds[k], buf + k * read_size, sizes[k]);
			close(fds[k]);
		}
	}
	free(buf);
	ring_close(&r);
	total += sum;
	return NULL;
}
#else
static void *work_in_order(void *unused) {
	errno = ENOSYS;
	fail("io_uring: compiled without", "linux/io_uring.h");
	return unused;
}
#endif

static void run_threads(int n, void *(*work)(void *)) {
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
		int names = !strcmp(mode, "names"), order = !strcmp(mode, "order"), stat_order = !strcmp(mode, "stat-order");
		whole = order || !strcmp(mode, "whole");
		int reads = whole || !strcmp(mode, "read");
		if ((!names && !reads && !stat_order && strcmp(mode, "stat")) || threads < 1 || threads > MAX_THREADS ||
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
				if (order || stat_order) qsort(files, nfiles, sizeof *files, by_inode);
				run_threads(threads, order ? work_in_order : work);
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
