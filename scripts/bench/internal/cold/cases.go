package cold

// A Case is a cold run that is measured, or cancelled.
type Case struct {
	Name, target string
	data         string   // a set of tickets, go for Go's source, 60x300, or how many files of how many bytes
	fs           string   // the file system of an image with the data; "": the directory itself, on the machine's disk
	disk         []string // flags of disk run
	ours, loop   string   // sides of floor; with cat, direct reads are measured too; without a loop, runs are cancelled
}

// Target returns the target of the case with this name, if there is one.
func Target(name string) (target string) {
	for _, c := range Cases {
		if c.Name == name {
			target = c.target
		}
	}
	return target
}

var (
	cloud = []string{"-rate", "3000", "-latency", "500us", "-inflight", "32"}
	head  = []string{"-seek", "4ms", "-inflight", "32"}
	slow  = []string{"-seek", "10ms", "-inflight", "32"}
)

const again = "fileproc-again" // a run of package incremental after which nothing has changed

// Cases are measured one after the other.
var Cases = []Case{
	{"flat_100k, ext4", "≤ 2,500 requests", "flat_100k", "ext4", nil, "fileproc", "c"},
	{"flat_100k, the machine's disk", "wall ≤ 0.65", "flat_100k", "", nil, "fileproc", "c"},
	{"flat_100k, ext4, 3,000 requests/s", "≤ 6 s", "flat_100k", "ext4", cloud, "fileproc", "c"},
	{"nested1_100k, ext4", "≤ 3,500 requests", "nested1_100k", "ext4", nil, "fileproc", "c"},
	{"nested3_100k, ext4", "≤ 3,500 requests", "nested3_100k", "ext4", nil, "fileproc", "c"},
	{"go, ext4, 3,000 requests/s", "≤ 1.5 s, ≤ 2,300 requests", "go", "ext4", cloud, "fileproc", "c"},
	{"go, xfs, 3,000 requests/s", "≤ 1.5 s, ≤ 2,300 requests", "go", "xfs", cloud, "fileproc", "c"},
	{"go, btrfs, 3,000 requests/s", "≤ 1.5 s, ≤ 2,300 requests", "go", "btrfs", cloud, "fileproc", "c"},
	{"go, ext4, one head, 4 ms a seek", "≤ 8 s, ≤ 2,500 requests", "go", "ext4", head, "fileproc", "c"},
	{"flat_1m, ext4", "≤ 30,000 requests", "flat_1m", "ext4", nil, "fileproc", "c"},
	{"metadata of flat_100k, ext4", "≤ 1,450 requests, wall ≤ 1.00", "flat_100k", "ext4", nil, "fileproc-stat", "c-stat"},
	{"nothing changed since an incremental run: flat_100k, ext4", "no more requests than for metadata", "flat_100k", "ext4", nil, again, "c-stat"},
	{"64 KiB, the machine's disk", "wall ≤ 1.00", "6400of65701", "", nil, "fileproc", "cat"},
	{"64 KiB, ext4, 3,000 requests/s", "wall ≤ 1.00", "6400of65701", "ext4", cloud, "fileproc", "cat"},
	{"256 KiB, the machine's disk", "wall ≤ 1.00", "2000of262301", "", nil, "fileproc", "cat"},
	{"256 KiB, ext4, 3,000 requests/s", "wall ≤ 1.00", "2000of262301", "ext4", cloud, "fileproc", "cat"},
	{"1 MiB, the machine's disk", "wall ≤ 1.00", "512of1048701", "", nil, "fileproc", "cat"},
	{"1 MiB, ext4, 3,000 requests/s", "wall ≤ 1.00", "512of1048701", "ext4", cloud, "fileproc", "cat"},
	{"16 MiB, the machine's disk", "wall ≤ 1.00", "48of16778001", "", nil, "fileproc", "cat"},
	{"16 MiB, ext4, 3,000 requests/s", "wall ≤ 1.00", "48of16778001", "ext4", cloud, "fileproc", "cat"},
	{"200 MiB, the machine's disk", "wall ≤ 1.00", "4of209800001", "", nil, "fileproc", "cat"},
	{"200 MiB, ext4, 3,000 requests/s", "wall ≤ 1.00", "4of209800001", "ext4", cloud, "fileproc", "cat"},
	{"cancel, 60 directories of 300 files, ext4, one head, 4ms a seek", "≤ 100 ms", "60x300", "ext4", head, "fileproc", ""},
	{"cancel-stat, 60 directories of 300 files, ext4, one head, 4ms a seek", "≤ 100 ms", "60x300", "ext4", head, "fileproc-stat", ""},
	{"cancel, 60 directories of 300 files, ext4, one head, 10ms a seek", "", "60x300", "ext4", slow, "fileproc", ""},
	{"cancel-stat, 60 directories of 300 files, ext4, one head, 10ms a seek", "", "60x300", "ext4", slow, "fileproc-stat", ""},
}
