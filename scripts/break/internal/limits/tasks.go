//go:build linux

package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/fileproc/fileproc/scripts/break/internal/trial"
)

// requireAll makes every kind of run over root and requires want files: those of set, if it is not nil, and else want is their number.
func requireAll(ctx context.Context, root string, want int, set map[string]bool, opts fileproc.Options, ok func(r *trial.Run, f *fileproc.File) error) (string, error) {
	for _, entry := range []string{"ForEach", "Stream", "Walk"} {
		r := &trial.Run{Root: root, Entry: entry, Opts: opts, Want: set}
		r.Opts.Ordered = entry == "Stream"
		r.File = func(f *fileproc.File, _ *trial.Answer) error { return ok(r, f) }
		err := r.Do(ctx)
		if err == nil && r.Files != int64(want) {
			err = fmt.Errorf("%d files of %d: %+v", r.Files, want, r.Report)
		}
		if err != nil {
			return "", fmt.Errorf("%v: %w", r, err)
		}
	}
	return fmt.Sprintf("%d files three times", want), nil
}

// wideRels returns the files of a tree of 3,000 directories, ten in each, with two files each.
func wideRels() (rels []string) {
	dirs := []string{""}
	for i := range 3000 {
		dirs = append(dirs, fmt.Sprintf("%sd%04d/", dirs[i/10], i))
		rels = append(rels, dirs[i+1]+"f0", dirs[i+1]+"f1")
	}
	return rels
}

func wideTree(ctx context.Context, e env) (string, error) {
	set := trial.Set(wideRels())
	return requireAll(ctx, e.wide, len(set), set, fileproc.Options{}, func(r *trial.Run, f *fileproc.File) error {
		return r.Check(f, testtree.BytesOf(f.Rel()))
	})
}

func thousandRuns(ctx context.Context, e env) (string, error) {
	var runs sync.WaitGroup
	var failed [1000]error
	want := map[string]map[string]bool{} // by directory
	for _, rel := range wideRels() {
		dir, rest, _ := strings.Cut(rel, "/")
		if want[dir] == nil {
			want[dir] = map[string]bool{}
		}
		want[dir][rest] = true
	}
	for i := range failed {
		dir := fmt.Sprintf("d%04d", i%10)
		r := &trial.Run{Root: filepath.Join(e.wide, dir), Entry: "Process", Want: want[dir]}
		r.File = func(f *fileproc.File, _ *trial.Answer) error { return r.Check(f, testtree.BytesOf(dir+"/"+f.Rel())) }
		runs.Go(func() { failed[i] = r.Deliver(ctx) })
	}
	runs.Wait()
	return "1,000 complete", cmp.Or(failed[:]...)
}

// slowLoop lets the results of a run wait: 2 seconds before the first, and a millisecond after each hundred.
func slowLoop(entry string, ordered bool) func(context.Context, env) (string, error) {
	return func(ctx context.Context, e env) (string, error) {
		n := 0
		r := &trial.Run{Root: e.many, Entry: entry, Opts: fileproc.Options{Ordered: ordered}, Next: func() bool {
			switch {
			case n == 0:
				time.Sleep(2 * time.Second)
			case n%100 == 0:
				time.Sleep(time.Millisecond)
			}
			n++
			return true
		}}
		if err := r.Do(ctx); err != nil {
			return "", err
		}
		most := 64
		if ordered { // keeps the names of the directory that is being listed
			most = 256
		}
		return fmt.Sprintf("%d results", n), peakBelow(most)
	}
}

// manyFiles reads a million small files, and checks their number and the sum of their sizes.
func manyFiles(ctx context.Context, e env) (string, error) {
	var bytes atomic.Int64
	r := &trial.Run{Root: e.many, Entry: "ForEach", Opts: fileproc.Options{Stat: true}, File: func(f *fileproc.File, _ *trial.Answer) error {
		s, err := f.Stat()
		if err == nil && s.Size != int64(len(f.Data())) {
			err = fmt.Errorf("%d bytes of %d", len(f.Data()), s.Size)
		}
		bytes.Add(s.Size)
		return err
	}}
	start := time.Now()
	err := r.Do(ctx)
	took := time.Since(start)
	dir, err2 := os.Open(e.many)
	want := int64(0)
	for err = errors.Join(err, err2); err == nil; { // without memory for all names
		names, failure := dir.Readdirnames(1000)
		if want += int64(len(names)); failure == io.EOF {
			break
		}
		err = failure
	}
	if err == nil && r.Files != want {
		err = fmt.Errorf("%d files of %d", r.Files, want)
	}
	return fmt.Sprintf("%d files, %d MiB, %.1f s", r.Files, bytes.Load()>>20, took.Seconds()), err
}

const chainLevels = 20_000

// plantChain makes a chain of directories, each with a file that holds its level. Its path is longer than PATH_MAX.
func plantChain(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	at, err := os.OpenRoot(dir)
	for i := 0; i < chainLevels && err == nil; i++ {
		var next *os.Root
		if err = errors.Join(at.WriteFile("f", fmt.Append(nil, i), 0o644), at.Mkdir("d", 0o755)); err == nil {
			next, err = at.OpenRoot("d")
		}
		at.Close()
		at = next
	}
	return err
}

// removeChain shortens the chain at its beginning. os.RemoveAll would need a descriptor for each level.
func removeChain(dir string) {
	for os.Rename(dir+"/d/d", dir+"/next") == nil {
		os.RemoveAll(dir + "/d")
		os.Rename(dir+"/next", dir+"/d")
	}
}

func deepChain(ctx context.Context, e env) (string, error) {
	seen := make([]atomic.Int32, chainLevels)
	did, err := requireAll(ctx, e.deep, chainLevels, nil, fileproc.Options{}, func(r *trial.Run, f *fileproc.File) error {
		level := -1
		if _, err := fmt.Sscan(string(f.Data()), &level); err != nil || level < 0 || level >= chainLevels {
			return fmt.Errorf("it holds %q", f.Data())
		}
		seen[level].Add(1)
		return nil
	})
	for level := range seen {
		if n := seen[level].Load(); err == nil && n != 2 { // once in ForEach, once in Stream
			err = fmt.Errorf("level %d came %d times", level, n)
		}
	}
	return did, errors.Join(err, peakBelow(256))
}

// largeIgnoreFile reads an ignore file of the greatest size, each line of which ignores one name, and half of the names exist.
func largeIgnoreFile(ctx context.Context, e env) (string, error) {
	dir := filepath.Join(filepath.Dir(e.wide), "ignored")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	lines := make([]byte, 0, 100<<20)
	n := 0
	for ; len(lines)+len("/name-0000000.*\n") <= cap(lines); n++ {
		lines = fmt.Appendf(lines, "/name-%07d.*\n", n)
	}
	const files = 50
	var named, others []string
	for i := range files / 2 {
		named = append(named, fmt.Sprintf("name-%07d.md", n/files*2*i))
		others = append(others, "x"+named[i])
	}
	none := func(string) []byte { return nil }
	err := errors.Join(os.WriteFile(filepath.Join(dir, ".gitignore"), lines, 0o644), trial.Write(dir, none, append(named, others...)...))
	if err != nil {
		return "", err
	}
	opts := fileproc.Options{IgnoreFiles: []string{".gitignore"}, SkipHidden: true}
	start := time.Now()
	did, err := requireAll(ctx, dir, len(others), trial.Set(others), opts, func(*trial.Run, *fileproc.File) error { return nil })
	return fmt.Sprintf("%s, %d lines, %v", did, n, time.Since(start).Round(time.Second/10)), errors.Join(err, peakBelow(4096))
}
