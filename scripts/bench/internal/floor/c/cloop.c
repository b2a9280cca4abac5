// The floor: only the system calls that are needed to read every file of a directory.
//
//   cloop DIR
//
// Each line on standard input, "MODE SIZE THREADS", runs one pass and prints "WALL_NS CPU_NS FILES BYTES". A pass lists DIR, with
// its subdirectories, into memory and then reads with THREADS threads. After a failure it prints "error: …" and exits.
// Modes: read (open, one read of SIZE bytes, close), whole (reads of SIZE bytes until a short one), order (the same in the order
// of the inodes, the first reads of WINDOW files in one io_uring submission), stat (fstatat; SIZE is 0), stat-order (the same in
// the order of the inodes) and names (list only DIR, with one buffer).
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 1 << 20, ROOM = 32 << 10, BATCH = 128, WINDOW = 256, MAX_THREADS = 1024, MAX_DIRS = 1 << 20, MAX_FILES = 10 << 20 };

struct entry { unsigned long long ino; long long off; unsigned short reclen; unsigned char type; char name[]; };
struct file { int dir; struct entry *entry; };

// The memory that a pass uses. The next pass has it again, as a Go program has its heap.
static char listing[512 << 20] __attribute__((aligned(8)));
static struct file files[MAX_FILES];
static int dirs[MAX_DIRS]; // open while the pass runs
static size_t nfiles, ndirs;

static int whole, order;   // read on until a short read; with io_uring
static size_t read_size;   // 0: fstatat
static atomic_size_t next_file;
static atomic_llong total;

static void die(const char *what, const char *name) {
	printf("error: %s %s: %s\n", what, name, strerror(errno));
	fflush(stdout);
	_exit(1);
}

static void full(int yes, const char *what) {
	errno = ENOMEM;
	if (yes) die("too many", what);
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
			full(sizeof listing - used < ROOM, "names");
			size_t room = BUFFER - used % BUFFER < ROOM ? ROOM : BUFFER - used % BUFFER;
			if (!(n = getdents(dirs[d], listing + used, room))) break;
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

static int open_file(struct file *f) {
	int fd = openat(f->dir, f->entry->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) die("openat", f->entry->name);
	return fd;
}

// end reads what follows the first n bytes, unless they are the end, and closes the file.
static long long end(struct file *f, int fd, char *buf, ssize_t n) {
	long long sum = 0;
	for (;; n = pread(fd, buf, read_size, sum)) {
		if (n < 0) die("read", f->entry->name);
		sum += n;
		if (!whole || n < (ssize_t)read_size) break;
	}
	close(fd);
	return sum;
}

static long long one(struct file *f, char *buf) {
	if (!read_size) {
		struct stat st;
		if (fstatat(f->dir, f->entry->name, &st, AT_SYMLINK_NOFOLLOW)) die("fstatat", f->entry->name);
		return st.st_size;
	}
	int fd = open_file(f);
	return end(f, fd, buf, read(fd, buf, read_size));
}

struct ring {
	int fd;
	struct io_uring_params p;
	char *queues; // both, since Linux 5.4
	struct io_uring_sqe *sqes;
	size_t queues_size, sqes_size;
};

static void ring_open(struct ring *r) {
	memset(r, 0, sizeof *r);
	if ((r->fd = syscall(SYS_io_uring_setup, WINDOW, &r->p)) < 0) die("io_uring_setup", "");
	size_t sq = r->p.sq_off.array + r->p.sq_entries * sizeof(unsigned);
	size_t cq = r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe);
	r->queues_size = sq > cq ? sq : cq, r->sqes_size = r->p.sq_entries * sizeof *r->sqes;
	r->queues = mmap(NULL, r->queues_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQ_RING);
	r->sqes = mmap(NULL, r->sqes_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQES);
	if (r->queues == MAP_FAILED || r->sqes == MAP_FAILED) die("mmap of io_uring", "");
}

static void ring_close(struct ring *r) {
	munmap(r->queues, r->queues_size), munmap(r->sqes, r->sqes_size), close(r->fd);
}

// ring_read reads the beginning of n files in one submission, and sets each size or error. The kernel can merge requests for
// neighbouring blocks until the submission ends.
static void ring_read(struct ring *r, const int *fds, char *buf, int n, int *sizes) {
	unsigned *tail = (unsigned *)(r->queues + r->p.sq_off.tail), *array = (unsigned *)(r->queues + r->p.sq_off.array);
	unsigned *head = (unsigned *)(r->queues + r->p.cq_off.head), *end = (unsigned *)(r->queues + r->p.cq_off.tail);
	struct io_uring_cqe *cqes = (struct io_uring_cqe *)(r->queues + r->p.cq_off.cqes);
	for (int i = 0; i < n; i++) {
		r->sqes[i] = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = fds[i], .addr = (unsigned long)(buf + i * read_size),
			.len = read_size, .user_data = i};
		array[(*tail + i) & (r->p.sq_entries - 1)] = i;
	}
	__atomic_store_n(tail, *tail + n, __ATOMIC_RELEASE);
	for (int sent = 0, done = 0; done < n;) {
		int k = syscall(SYS_io_uring_enter, r->fd, n - sent, n - done, IORING_ENTER_GETEVENTS, NULL, 0);
		if (k < 0 && errno != EINTR) die("io_uring_enter", "");
		if (k > 0) sent += k;
		for (; *head != __atomic_load_n(end, __ATOMIC_ACQUIRE); done++) {
			struct io_uring_cqe *c = &cqes[*head & (r->p.cq_entries - 1)];
			sizes[c->user_data] = c->res;
			__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
		}
	}
}

static long long window(struct ring *r, struct file *f, int n, char *buf) {
	int fds[WINDOW], sizes[WINDOW];
	long long sum = 0;
	for (int i = 0; i < n; i++) fds[i] = open_file(&f[i]);
	ring_read(r, fds, buf, n, sizes);
	for (int i = 0; i < n; i++) {
		if (sizes[i] < 0) errno = -sizes[i];
		sum += end(&f[i], fds[i], buf + i * read_size, sizes[i]);
	}
	return sum;
}

static void *work(void *unused) {
	size_t batch = order ? WINDOW : BATCH;
	char *buf = malloc(WINDOW * read_size + 1);
	if (!buf) die("malloc", "");
	struct ring r;
	if (order) ring_open(&r);
	long long sum = 0;
	for (size_t i; (i = atomic_fetch_add(&next_file, batch)) < nfiles;) {
		size_t last = i + batch < nfiles ? i + batch : nfiles;
		if (order) sum += window(&r, &files[i], last - i, buf);
		else for (; i < last; i++) sum += one(&files[i], buf);
	}
	if (order) ring_close(&r);
	free(buf);
	total += sum;
	return unused;
}

static void run_threads(int n) {
	pthread_t threads[MAX_THREADS];
	full(n > MAX_THREADS, "threads");
	for (int i = 0; i < n; i++)
		if ((errno = pthread_create(&threads[i], NULL, work, NULL))) die("pthread_create", "");
	for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

static int by_inode(const void *a, const void *b) {
	unsigned long long x = ((struct file *)a)->entry->ino, y = ((struct file *)b)->entry->ino;
	return (x > y) - (x < y);
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
	int threads;
	if (argc != 2) { fprintf(stderr, "usage: cloop DIR\n"); return 2; }
	// Every directory stays open until its files are read.
	struct rlimit lim;
	if (!getrlimit(RLIMIT_NOFILE, &lim)) { lim.rlim_cur = lim.rlim_max; setrlimit(RLIMIT_NOFILE, &lim); }

	while (scanf("%15s %zu %d", mode, &read_size, &threads) == 3) {
		order = !strcmp(mode, "order"), whole = order || !strcmp(mode, "whole");
		long long wall = wall_ns(), cpu = cpu_ns();
		nfiles = ndirs = next_file = total = 0;
		open_dir(AT_FDCWD, argv[1]);
		if (!strcmp(mode, "names")) {
			count_names();
		} else {
			list();
			if (strstr(mode, "order")) qsort(files, nfiles, sizeof *files, by_inode);
			run_threads(threads);
		}
		for (size_t i = 0; i < ndirs; i++) close(dirs[i]);
		wall = wall_ns() - wall, cpu = cpu_ns() - cpu;
		printf("%lld %lld %zu %lld\n", wall, cpu, nfiles, (long long)total);
		fflush(stdout);
	}
	return 0;
}
