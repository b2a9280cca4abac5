//go:build linux

// Package readers has the ways to read a set of files that more than one command measures.
package readers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/turns"
	"golang.org/x/sys/unix"
)

// Set returns the path of the directory dir, with symbolic links resolved, because half of the sides do not follow a root that is
// one, and the name of the set in it.
func Set(dir string) (path, name string, err error) {
	if path, err = filepath.EvalSymlinks(dir); err != nil {
		return "", "", err
	}
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	return path, strings.TrimPrefix(filepath.Base(dir), "tickets_"), err
}

// DropCaches empties the page, dentry and inode caches. It needs root.
func DropCaches() error {
	unix.Sync() // dirty pages cannot be dropped
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o200); err != nil {
		return fmt.Errorf("dropping the caches: %w", err)
	}
	return nil
}

// Fileproc returns fileproc's work, which counts per worker, on separate cache lines, so that the counters cost nothing. With NoRead
// and Stat it counts the bytes that the metadata says.
func Fileproc(ctx context.Context, dir string, opts fileproc.Options) turns.Work {
	if opts.Workers == 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	return func() (files int, bytes int64, err error) {
		perWorker := make([]struct {
			files int
			bytes int64
			_     [112]byte
		}, opts.Workers)
		_, err = fileproc.Process(ctx, dir, opts, func(f *fileproc.File) (struct{}, error) {
			w := &perWorker[f.Worker()]
			w.files++
			if opts.ReadSize != fileproc.NoRead {
				w.bytes += int64(len(f.Data()))
				return struct{}{}, nil
			}
			st, err := f.Stat()
			w.bytes += st.Size
			return struct{}{}, err
		})
		for _, w := range perWorker {
			files += w.files
			bytes += w.bytes
		}
		return files, bytes, err
	}
}

// Paths returns the work of os.ReadFile for the paths that walk passes to read, on any goroutine. A call allocates nothing for the
// counters, since it may read a single file.
func Paths(walk func(read func(path string) error) error) turns.Work {
	var files, bytes atomic.Int64
	read := func(path string) error {
		data, err := os.ReadFile(path)
		if err == nil {
			files.Add(1)
			bytes.Add(int64(len(data)))
		}
		return err
	}
	return func() (int, int64, error) {
		files.Store(0)
		bytes.Store(0)
		err := walk(read)
		return int(files.Load()), bytes.Load(), err
	}
}

// Regular returns a callback for filepath.WalkDir that reads the regular files.
func Regular(read func(path string) error) fs.WalkDirFunc {
	return func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return read(path)
	}
}

// WalkDir returns the work of the usual loop.
func WalkDir(dir string) turns.Work {
	return Paths(func(read func(string) error) error { return filepath.WalkDir(dir, Regular(read)) })
}

// ReadDir returns the work of a loop over os.ReadDir, which sees as many directories as there are.
func ReadDir(dir string) turns.Work {
	return Paths(func(read func(string) error) error { return list(dir, read) })
}

func list(dir string, read func(path string) error) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if err != nil {
			break
		}
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			err = list(path, read)
		case e.Type().IsRegular():
			err = read(path)
		}
	}
	return err
}

// Pool returns the work of a loop over os.ReadDir in one goroutine, with others that read.
func Pool(goroutines int, dir string) turns.Work {
	return Paths(func(read func(string) error) error {
		return InPool(goroutines, read, func(yield func(string) error) error { return list(dir, yield) })
	})
}

// InPool reads the paths that each yields. It continues after a failure, so that yield never blocks for ever.
func InPool(goroutines int, read func(path string) error, each func(yield func(path string) error) error) error {
	queue := make(chan string, 128) // for performance: neither side waits for each path
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for path := range queue {
				if err := read(path); err != nil {
					errs[i] = err
				}
			}
		})
	}
	err := each(func(path string) error {
		queue <- path
		return nil
	})
	close(queue)
	wg.Wait()
	return errors.Join(append(errs, err)...)
}

// Entries returns the work of a function that lists one directory.
func Entries(list func(dir string) ([]fs.DirEntry, error), dir string) turns.Work {
	return func() (int, int64, error) {
		entries, err := list(dir)
		return len(entries), 0, err
	}
}
