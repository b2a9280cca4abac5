//go:build linux

package floor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/charlievieth/fastwalk"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/record"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

// peers compares fileproc with the loops and the package that people use in its place. They read each file with os.ReadFile, in the
// callback if there is one.
func (r *run) peers() []record.Record {
	fastWalk := paths(func(read func(string) error) error { return fastwalk.Walk(&fastwalk.Config{}, r.dir, regular(read)) })
	sides := turns.Comparison{r.fileproc(whole), walkDir(r.dir).Side(), pool(runtime.GOMAXPROCS(0), r.dir).Side(), fastWalk.Side()}
	for i, name := range []string{"fileproc", "WalkDir + ReadFile", "ReadDir + goroutine pool", "charlievieth/fastwalk"} {
		sides[i].Name, sides[i].Version = name, runtime.Version()
	}
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if m.Path == "github.com/charlievieth/fastwalk" {
			sides[3].Version = m.Version
		}
	}
	return r.compare(sides)
}

// programs compares whole programs that count the lines with a string: the command fileproc, which is built for this, rg and grep.
func (r *run) programs() []record.Record {
	const needle = "status: open"
	ours := filepath.Join(r.temp(), "fileproc")
	fail.Must(commands.Output(r.ctx, "../cmd/fileproc", "go", "build", "-o", ours, "."))
	files := len(r.list())
	var sides turns.Comparison
	for _, p := range [][]string{ // a name, the program, its arguments
		{"fileproc grep", ours, "grep", "-uu", "-c"},
		{"ripgrep", "rg", "--no-config", "-uuu", "-F", "-c"},
		{"grep", "grep", "-rFc"},
	} {
		side := turns.Work(func() (int, int64, error) {
			lines, err := counted(r.ctx, append(p[1:], needle, r.dir))
			return files, lines, err
		}).Side()
		version, _ := exec.Command(p[1], "--version").Output() // empty if it is not installed
		side.Name = p[0]
		side.Version, _, _ = strings.Cut(string(version), "\n")
		sides = append(sides, side)
	}
	return r.compare(sides)
}

// counted runs a program, whose output is lines of path:count, and returns the sum.
func counted(ctx context.Context, args []string) (lines int64, err error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // grep is slower in other locales
	out, err := cmd.Output()
	for line := range bytes.Lines(out) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		n, err := strconv.ParseInt(string(line[bytes.LastIndexByte(line, ':')+1:]), 10, 64)
		if err != nil {
			return lines, fmt.Errorf("its output is not path:count: %q", line)
		}
		lines += n
	}
	return lines, err
}

// read returns fileproc's work. Each worker has a counter on a cache line of its own, so that counting costs nothing. With NoRead
// and Stat, the bytes are the sizes in the metadata.
func read(ctx context.Context, dir string, opts fileproc.Options) turns.Work {
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

// paths returns the work of os.ReadFile for the paths that walk passes to read, on any goroutine. The counters take no allocation,
// which would matter if walk reads a single file.
func paths(walk func(read func(path string) error) error) turns.Work {
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

// regular returns a callback for filepath.WalkDir that reads the regular files.
func regular(read func(path string) error) fs.WalkDirFunc {
	return func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return read(path)
	}
}

func walkDir(dir string) turns.Work {
	return paths(func(read func(string) error) error { return filepath.WalkDir(dir, regular(read)) })
}

// readDir returns the work of a loop over os.ReadDir, which sees as many directories as there are.
func readDir(dir string) turns.Work {
	return paths(func(read func(string) error) error { return list(dir, read) })
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

// pool returns the work of a loop over os.ReadDir in one goroutine, while other goroutines read the files.
func pool(goroutines int, dir string) turns.Work {
	return paths(func(read func(string) error) error { return inPool(goroutines, read, dir) })
}

// inPool is the loop of pool. Its readers continue after a failure, so that the loop never blocks for ever.
func inPool(goroutines int, read func(path string) error, dir string) error {
	queue := make(chan string, 128) // for performance: the two sides need not wait for each other at each path
	var g errgroup.Group
	for range goroutines {
		g.Go(func() (err error) {
			for path := range queue {
				err = cmp.Or(err, read(path))
			}
			return err
		})
	}
	err := list(dir, func(path string) error {
		queue <- path
		return nil
	})
	close(queue)
	return errors.Join(g.Wait(), err)
}

// cat returns the work of r.threads goroutines that read whole files with calls of size bytes.
func (r *run) cat(size, flags int) turns.Work {
	var files, bytes atomic.Int64
	var buffers sync.Pool
	return func() (int, int64, error) {
		err := inPool(r.threads, func(path string) error {
			f, err := os.OpenFile(path, os.O_RDONLY|flags, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			buffer, isKept := buffers.Get().(*[]byte)
			if !isKept {
				pages, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
				if err != nil {
					return err
				}
				buffer = &pages
			}
			defer buffers.Put(buffer)
			files.Add(1)
			for n := size; err == nil && n > 0 && n%512 == 0; bytes.Add(int64(n)) { // a direct read ends at the first odd offset
				n, err = unix.Read(int(f.Fd()), *buffer)
			}
			return err
		}, r.dir)
		return int(files.Load()), bytes.Load(), err
	}
}

// entries returns the work of a function that lists one directory.
func entries(list func(dir string) ([]fs.DirEntry, error), dir string) turns.Work {
	return func() (int, int64, error) {
		entries, err := list(dir)
		return len(entries), 0, err
	}
}
