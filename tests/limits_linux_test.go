//go:build linux

package fileproc_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

const (
	groupVariable = "FILEPROC_TEST_GROUP" // the control group that a task enters
	manyVariable  = "FILEPROC_MANY"       // a flat directory of a million small files, from scripts/tickets
	// scripts/reliability.sh limits sets this one, for what takes a minute.
	limitsVariable = "FILEPROC_LIMITS"
)

func init() {
	tasks["16 descriptors"] = underALimit(16)
	tasks["24 descriptors"] = underALimit(24)
	tasks["1,000 runs"] = manyRunsAtOnce(64, 1000)
	tasks["1,000 runs, 1,024 descriptors"] = manyRunsAtOnce(1024, 1000)
	tasks["chain"] = alongAChain
	tasks["chain, 24 descriptors"] = func(t *testing.T, root string) {
		limitDescriptors(t, 24)
		alongAChain(t, root)
	}
	for _, ordered := range []bool{false, true} {
		tasks[fmt.Sprint("a slow loop over Stream, ordered ", ordered)] = func(t *testing.T, root string) {
			slowLoop(t, root, fileproc.Stream(t.Context(), root, fileproc.Options{Ordered: ordered}, succeed))
		}
		tasks[fmt.Sprint("a slow loop over Walk, ordered ", ordered)] = func(t *testing.T, root string) {
			slowLoop(t, root, fileproc.Walk(t.Context(), root, fileproc.Options{Ordered: ordered}))
		}
	}
	tasks["many files"] = manyFiles
}

// A chain of directories, each with a file, has a path that is longer than PATH_MAX.
func TestInvariant3AChainOfDirectories(t *testing.T) {
	levels := 2000
	if os.Getenv(limitsVariable) != "" {
		levels = 20_000
	}
	root := memoryDir(t)
	t.Cleanup(func() { // from its beginning on: os.RemoveAll would need a descriptor for each level
		for os.Rename(root+"/d/d", root+"/next") == nil {
			_ = os.RemoveAll(root + "/d")
			_ = os.Rename(root+"/next", root+"/d")
		}
	})
	require.True(t, testtree.Deep(t, root, levels, "d", "f=deep"))
	for _, task := range []string{"chain", "chain, 24 descriptors"} {
		peak, ok := peakMiB(t, task, fmt.Sprint(root, ":", levels))
		require.True(t, !ok || raceDetector || peak < 256, "%s: %v MiB", task, peak)
		t.Logf("%s: peak %.0f MiB", task, peak)
	}
}

func alongAChain(t *testing.T, root string) {
	root, n, _ := strings.Cut(root, ":")
	levels, err := strconv.Atoi(n)
	require.NoError(t, err)
	for _, ordered := range []bool{false, true} {
		seen := make([]atomic.Int32, levels+1)
		leavesNothing(t, func() {
			require.NoError(t, drain(fileproc.Stream(t.Context(), root, fileproc.Options{Ordered: ordered}, func(f *fileproc.File) (int, error) {
				seen[strings.Count(f.Rel(), "/")].Add(1)
				if string(f.Data()) != "deep" {
					return 0, fmt.Errorf("it holds %q", f.Data())
				}
				return 0, nil
			})))
		})
		for level := range seen[1:] {
			require.EqualValues(t, 1, seen[level+1].Load(), "level %d", level+1)
		}
	}
	requireListed(t, root, int64(levels))
	printPeak(t)
}

// TestLimitsOfMemory needs FILEPROC_MANY; scripts/reliability.sh limits runs it.
func TestLimitsOfMemory(t *testing.T) {
	root := os.Getenv(manyVariable)
	if root == "" {
		t.Skipf("%s names no directory of a million files; (cd scripts && go run ./tickets -layout flat -count 1m -out ../.data) makes one", manyVariable)
	}
	for _, c := range []struct {
		task  string
		most  float64 // of peak memory, in MiB
		group int     // the memory of the control group, in MiB
		cold  bool    // the machine's caches are dropped before
		env   string
	}{
		{task: "a slow loop over Stream, ordered false", most: 80},
		{task: "a slow loop over Stream, ordered true", most: 256}, // keeps the names of the directory that is being listed
		{task: "a slow loop over Walk, ordered false", most: 80},
		{task: "a slow loop over Walk, ordered true", most: 256},
		{task: "many files", most: 64, group: 64},
		{task: "many files", most: 128, group: 128, cold: true},
		{task: "many files", most: 64, group: 64, cold: true},
		{task: "many files", most: 48, group: 48, cold: true},
		{task: "many files", most: 48, env: "GOMEMLIMIT=40MiB", cold: true},
	} {
		t.Run(fmt.Sprintf("%s, group of %d MiB, cold %v, %s", c.task, c.group, c.cold, c.env), func(t *testing.T) {
			change := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, c.env) }
			if c.group > 0 {
				group := memoryGroup(t, c.group)
				change = func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, groupVariable+"="+group) }
			}
			if c.cold {
				if err := dropCaches(); err != nil {
					t.Skipf("cold caches: %v", err)
				}
			}
			peak, ok := peakMiB(t, c.task, root, change)
			require.True(t, ok)
			require.Less(t, peak, c.most, "MiB")
			t.Logf("%s: peak %.0f MiB", t.Name(), peak)
		})
	}
}

// memoryGroup makes a control group, and returns its directory.
func memoryGroup(t *testing.T, mib int) (dir string) {
	dir, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err == nil { // version 2
		dir, limit = "/sys/fs/cgroup", "memory.max"
	}
	dir, err := os.MkdirTemp(dir, "fileproc-limits-")
	if err != nil {
		t.Skipf("no control group can be made: %v", err)
	}
	t.Cleanup(func() {
		for range 50 { // its last process may not be gone yet
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, limit), fmt.Append(nil, mib<<20), 0o644); err != nil {
		t.Skipf("no limit of memory can be set: %v", err)
	}
	_ = os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0o644) // where there is one
	return dir
}

// slowLoop lets the results of a run wait: 2 seconds before the first, and a millisecond after each hundred.
func slowLoop[T any](t *testing.T, root string, results func(func(T, error) bool)) {
	n := 0
	for _, err := range results {
		require.NoError(t, err)
		switch {
		case n == 0:
			time.Sleep(2 * time.Second)
		case n%100 == 0:
			time.Sleep(time.Millisecond)
		}
		n++
	}
	printPeak(t)
	require.Equal(t, numberOfFiles(t, root), n)
}

// manyFiles reads a directory of many files, and checks their number and sizes.
func manyFiles(t *testing.T, root string) {
	if group := os.Getenv(groupVariable); group != "" {
		require.NoError(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0))
	}
	testtree.Set(t, &knobs.SlowCall, defaultSlowCall) // so that a cold run is seen as one
	var n atomic.Int64
	require.NoError(t, fileproc.ForEach(t.Context(), root, fileproc.Options{Stat: true}, func(f *fileproc.File) error {
		n.Add(1)
		s, err := f.Stat()
		if err == nil && s.Size != int64(len(f.Data())) {
			err = fmt.Errorf("%d bytes of %d", len(f.Data()), s.Size)
		}
		return err
	}))
	printPeak(t)
	require.EqualValues(t, numberOfFiles(t, root), n.Load())
}

// numberOfFiles counts without memory for all names.
func numberOfFiles(t *testing.T, root string) (n int) {
	dir, err := os.Open(root)
	require.NoError(t, err)
	defer dir.Close()
	for err == nil {
		var names []string
		names, err = dir.Readdirnames(1000)
		n += len(names)
	}
	require.ErrorIs(t, err, io.EOF)
	return n
}
