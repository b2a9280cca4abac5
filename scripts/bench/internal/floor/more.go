//go:build linux

package floor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/fileproc/fileproc"
)

// runShapes compares trees of many small directories.
func runShapes(pairs, passes, threads int, p printer) error {
	tmp, err := os.MkdirTemp("", "floor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	many, chain := filepath.Join(tmp, "many"), filepath.Join(tmp, "chain")
	for i := range 1000 {
		if err := writeFiles(filepath.Join(many, fmt.Sprint(i)), 3); err != nil {
			return err
		}
	}
	if err := writeFiles(filepath.Join(chain, strings.Repeat("d/", 1000)), 3); err != nil {
		return err
	}
	p.header(pairs, passes)
	for _, shape := range []struct{ name, dir string }{{"1,000 directories of 3 / C loop", many}, {"chain of 1,000 / C loop", chain}} {
		c, err := startCLoop(shape.dir, threads)
		if err != nil {
			return err
		}
		whole := timed(func() (int, int64, error) { return process(shape.dir, fileproc.Options{}) })
		err = p.compare(pairs, passes, comparison{shape.name, whole, c.side("read", cReadSize)})
		c.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// runPlain compares with a plain WalkDir loop, also with one worker, on the set or, without one, on small trees.
func runPlain(set string, pairs, passes int, p printer) error {
	trees := []tree{{p.set, set, 1}}
	if set == "" {
		tmp, err := os.MkdirTemp("", "floor-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		if trees, err = smallTrees(tmp); err != nil {
			return err
		}
	}
	p.header(pairs, passes)
	for _, t := range trees {
		loop := repeated(t.calls, func() (int, int64, error) { return walkDir(t.dir) })
		for _, workers := range []int{1, runtime.GOMAXPROCS(0)} {
			ours := repeated(t.calls, func() (int, int64, error) { return process(t.dir, fileproc.Options{Workers: workers}) })
			c := comparison{fmt.Sprintf("%s, Workers %d / WalkDir + ReadFile", t.name, workers), ours, loop}
			if err := p.compare(pairs, passes, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// runURing compares runs with io_uring and without, in a build that has it. A pass repeats the run until it has read some 20,000
// files, so that passes over small sets, where it matters what a ring costs to make, are no shorter than others.
func runURing(set string, pairs, passes int, p printer) error {
	files, _, err := process(set, fileproc.Options{})
	if err != nil {
		return err
	}
	calls := max(1, 20_000/max(1, files))
	with := repeated(calls, func() (int, int64, error) { return process(set, fileproc.Options{}) })
	without := repeated(calls, func() (int, int64, error) { return process(set, fileproc.Options{DisableURing: true}) })
	return p.all([]comparison{{p.set + ", whole / the same without io_uring", with, without}}, pairs, passes)
}

// A tree is a directory that runPlain measures.
type tree struct {
	name, dir string
	calls     int // how many times a pass reads it
}

func smallTrees(tmp string) (trees []tree, err error) {
	for _, n := range []int{1, 2, 3, 5, 10, 100} {
		t := tree{fmt.Sprintf("%d files", n), filepath.Join(tmp, fmt.Sprint(n)), 2000 / n}
		if err := writeFiles(t.dir, n); err != nil {
			return nil, err
		}
		trees = append(trees, t)
	}
	for _, n := range []int{1, 3} {
		t := tree{fmt.Sprintf("1,000 directories of %d", n), filepath.Join(tmp, fmt.Sprint("many", n)), 1}
		for i := range 1000 {
			if err := writeFiles(filepath.Join(t.dir, fmt.Sprint(i)), n); err != nil {
				return nil, err
			}
		}
		trees = append(trees, t)
	}
	t := tree{"a chain of 1,000", filepath.Join(tmp, "chain"), 1}
	trees = append(trees, t)
	return trees, writeFiles(filepath.Join(t.dir, strings.Repeat("d/", 1000)), 3)
}

func writeFiles(dir string, n int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("ticket-%07d.md", i)), make([]byte, 400), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// runCold drops the page, dentry and inode caches before each pass.
func runCold(dir string, pairs int, p printer) error {
	whole := timed(func() (int, int64, error) { return process(dir, fileproc.Options{}) })
	p.header(pairs, 1)
	for _, threads := range []int{2, 8, 32, 64} {
		c, err := startCLoop(dir, threads)
		if err != nil {
			return err
		}
		err = p.compare(pairs, 1, comparison{fmt.Sprintf("cold / C loop of %d threads", threads), cold(whole), cold(c.side("read", cReadSize))})
		c.close()
		if err != nil {
			return err
		}
	}
	c, err := startCLoop(dir, 2)
	if err != nil || c == nil {
		return err
	}
	defer c.close()
	ordered := c.side("order", cReadSize)
	if _, err := ordered(); err != nil { // it needs io_uring
		return p.leftOut(err.Error())
	}
	return p.compare(pairs, 1, comparison{"cold / C loop in the disk's order", cold(whole), cold(ordered)})
}

// cold returns a side that drops the caches before the clock of s starts, which needs root.
func cold(s side) side {
	if s == nil {
		return nil
	}
	return func() (pass, error) {
		if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o200); err != nil {
			return pass{}, fmt.Errorf("dropping the caches: %w", err)
		}
		return s()
	}
}

func printAllocs(dir string) error {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	files, _, err := process(dir, fileproc.Options{ReadSize: prefixSize})
	if err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	fmt.Printf("%.4f allocations a file, %d files, prefix\n", float64(after.Mallocs-before.Mallocs)/float64(max(files, 1)), files)
	return nil
}

// printPeak streams the files and prints the peak memory of the process.
func printPeak(dir string) error {
	files := 0
	for _, err := range fileproc.Stream(context.Background(), dir, fileproc.Options{}, func(f *fileproc.File) (int, error) { return len(f.Data()), nil }) {
		if err != nil {
			return err
		}
		files++
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			fmt.Printf("%s at most, %d files, Stream\n", strings.TrimSpace(kib), files)
		}
	}
	return nil
}
