//go:build linux

package regress

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/internal/fail"
)

func TestCompareCounts(t *testing.T) {
	old := map[string]counts{"flat_5k/whole": {"openat": 1, "read": 1, "getdents64": 0.0102, allocations: 60, mappings: 0, pageFaults: 2.5, "gone": 1}}
	with := func(kind string, n float64) map[string]counts {
		now := counts{"openat": 1, "read": 1, "getdents64": 0.0102, allocations: 60}
		now[kind] = n
		return map[string]counts{"flat_5k/whole": now, "flat_5k/new": {"openat": 9}}
	}
	for _, c := range []struct {
		kind string
		n    float64
		want string
	}{
		{"openat", 1, ""},
		{"openat", 1.005, ""},
		{"openat", 0.5, ""},
		{"openat", 1.01, "flat_5k/whole: openat a file from 1 to 1.01"}, // one more for a hundred files
		{"getdents64", 0.0104, "getdents64 a file from 0.0102 to 0.0104"},
		{mappings, 0.25, ""},
		{mappings, 1, "mappings a file from 0 to 1"}, // one for each file
		{pageFaults, 2.8, ""},
		{pageFaults, 4, "page faults a file from 2.5 to 4"},
		{allocations, 90, ""},
		{allocations, 91, "flat_5k/whole: allocations a run from 60 to 91"},
		{"close", 7, ""},   // not in the record
		{"unknown", 7, ""}, // not a count of this version
	} {
		var table bytes.Buffer
		err := fail.Try(func() { compareCounts(&table, old, with(c.kind, c.n)) })
		if c.want == "" {
			assert.NoError(t, err, "%s %v", c.kind, c.n)
		} else {
			require.ErrorIs(t, err, errMore)
			assert.ErrorContains(t, err, c.want)
			assert.Contains(t, table.String(), "more")
		}
	}
	err := fail.Try(func() {
		compareCounts(&bytes.Buffer{}, old, map[string]counts{"flat_5k/whole": {"openat": 2, "read": 2}})
	})
	assert.ErrorContains(t, err, "openat a file from 1 to 2; flat_5k/whole: read a file from 1 to 2")
}

// Counts are of the calls, so they are compared between machines of other speed, but not where other calls are made.
func TestSameCalls(t *testing.T) {
	ext4 := entry{Filesystem: "ext4", IOUring: true, Machine: "one"}
	here := ext4
	here.Machine, here.Time, here.Commit = "other", "later", "other"
	assert.True(t, here.sameCalls(ext4))
	for _, change := range []func(*entry){func(e *entry) { e.IOUring = false },
		func(e *entry) { e.Filesystem = "xfs" }, func(e *entry) { e.Platform = "linux/386" }} {
		other := ext4
		change(&other)
		assert.False(t, here.sameCalls(other), other)
	}
}

// Without its hooks a traced process reads many files twice.
func TestOldRevisionIsNotCounted(t *testing.T) {
	c := newClone(t, t.TempDir())
	assert.False(t, source{dir: c.root}.countable())
	assert.ErrorContains(t, fail.Try(func() { c.build(source{dir: c.root, hooks: true}, c.made("count.test")) }), "no export_test.go")
}

// A disturbed count is not taken, whether it is too large or too small.
func TestAgreed(t *testing.T) {
	for _, of := range [][]float64{{1, 1}, {9, 1, 1}, {1, -9, 1, 1}, {2, 3, 4, 5, 1, 7}} {
		next := 0
		n := agreed(func() counts { next++; return counts{"openat": of[next-1]} })
		assert.Equal(t, counts{"openat": 1}, n)
		assert.Equal(t, min(len(of), 5), next)
	}
}

func TestReadTrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace")
	require.NoError(t, os.WriteFile(file, []byte(`100 openat(AT_FDCWD, "a io_uring_enter = 7", O_RDONLY) = 3
100 preadv2(3, [{iov_base="read(", iov_len=16384}], 1, 0, RWF_NOWAIT) = 5
101 read(4,  <unfinished ...>
100 close(3)                          = 0
101 <... read resumed>"x", 1)          = 1
100 io_uring_enter(5, 64, 64, IORING_ENTER_GETEVENTS, NULL, 0) = 64
100 io_uring_enter(5, 64, 60, IORING_ENTER_GETEVENTS, NULL, 0 <unfinished ...>
101 futex(0x1, FUTEX_WAKE, 1)          = 1
100 <... io_uring_enter resumed>)      = 60
100 io_uring_enter(5, 64, 60, IORING_ENTER_GETEVENTS, NULL, 0) = -1 EINTR (Interrupted system call)
100 openat2(3, "d", {flags=O_RDONLY|O_DIRECTORY, resolve=RESOLVE_NO_XDEV}, 24) = 4
101 fstatfs(3, {f_type=EXT2_SUPER_MAGIC, f_bsize=4096, ...}) = 0
100 newfstatat(3, "x", {st_mode=S_IFREG|0644, st_size=400, ...}, AT_SYMLINK_NOFOLLOW) = 0
100 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 3, 0) = 0x7f0000000000
100 munmap(0x7f0000000000, 8192) = 0
101 +++ exited with 0 +++
`), 0o644))
	assert.Equal(t, map[string]int{"openat": 2, "fstatfs": 1, "read": 2, "close": 1, "io_uring_enter": 3, ringRequests: 124, "stat": 1, "getdents64": 0, mappings: 2},
		readTrace(file))
}

// What is counted does not vary from process to process. One more open for a hundred small files is found, and so is a mapping for
// each large one.
func TestPlantedCallIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("it traces some processes")
	}
	root, err := filepath.Abs("../../../..")
	require.NoError(t, err)
	c := newClone(t, root)
	if err := fail.Try(c.canTrace); err != nil {
		t.Skipf("system calls cannot be counted here: %v", err)
	}
	cases := []benchCase{newCase("flat_5k", "whole"), newCase("flat_64x16KiB", "whole"), newCase("flat_4x16MiB", "whole")}
	for _, bc := range cases {
		bc.ensure(c)
	}
	clean := source{dir: root}
	before := c.count(clean, cases)
	risen := func(src source, cases []benchCase) string {
		err := fail.Try(func() { compareCounts(&bytes.Buffer{}, before, c.count(src, cases)) })
		return fmt.Sprint(err)
	}
	assert.Equal(t, "<nil>", risen(clean, cases))
	assert.Contains(t, risen(c.plant(clean, "if plantedCalls++; plantedCalls%100 == 0 {\nif d, err := backend.OpenRoot(`.`); err == nil { d.Close() }\n}\n",
		"var plantedCalls int\n\n"), cases[:1]), "flat_5k/whole: openat a file")
	mapped := risen(c.plant(clean, `if m, err := syscall.Mmap(-1, 0, 1<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE); err == nil {
	for k := 0; k < len(m); k += 4096 { m[k] = 1 }
	syscall.Munmap(m)
}
`, ""), cases[1:])
	for _, bc := range cases[1:] {
		assert.Contains(t, mapped, bc.String()+": mappings a file")
		assert.Contains(t, mapped, bc.String()+": page faults a file")
	}
}

func newClone(t *testing.T, root string) clone { return clone{t.Context(), root, t.TempDir()} }
