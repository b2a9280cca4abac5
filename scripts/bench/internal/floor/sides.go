//go:build linux

package floor

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fileproc/fileproc"
)

// A pass is one measured run over the directory; times are in nanoseconds.
type pass struct {
	wall, cpu float64
	files     int
	bytes     int64
}

type side func() (pass, error)

const (
	cReadSize  = 4096 // bytes that the C loop reads of each file
	prefixSize = 2048 // bytes
)

func comparisons(name, dir string, c *cLoop) []comparison {
	whole := timed(func() (int, int64, error) { return process(dir, fileproc.Options{}) })
	switch name {
	case "files":
		var listed []string
		for e, err := range fileproc.Walk(context.Background(), dir, fileproc.Options{}) {
			if err == nil && !e.IsDir() { // a run over names that are missing fails
				listed = append(listed, e.Rel())
			}
		}
		named := func(order string, names []string) comparison {
			return comparison{"names " + order + " / a run that lists them", timed(func() (int, int64, error) {
				return process(dir, fileproc.Options{Files: slices.Values(names)})
			}), whole}
		}
		shuffled := slices.Clone(listed)
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		return []comparison{named("as listed", listed), named("sorted", slices.Sorted(slices.Values(listed))), named("shuffled", shuffled)}
	case "prefix":
		prefix := timed(func() (int, int64, error) { return process(dir, fileproc.Options{ReadSize: prefixSize}) })
		return []comparison{{"prefix / C loop", prefix, c.side("read", prefixSize)}}
	case "stat":
		stat := timed(func() (int, int64, error) {
			return process(dir, fileproc.Options{ReadSize: fileproc.NoRead, Stat: true})
		})
		return []comparison{{"stat / C loop with fstatat", stat, c.side("stat", 0)}}
	case "names":
		ours := timed(func() (int, int64, error) { return entries(fileproc.ReadDir(dir)) })
		return []comparison{
			{"ReadDir / bare getdents64", ours, c.side("names", 0)},
			{"ReadDir / os.ReadDir", ours, timed(func() (int, int64, error) { return entries(os.ReadDir(dir)) })},
		}
	case "walkdir":
		return []comparison{{"whole / WalkDir + ReadFile", whole, timed(func() (int, int64, error) { return walkDir(dir) })}}
	default:
		return []comparison{{"whole / C loop", whole, c.side("read", cReadSize)}}
	}
}

// timed collects garbage before it starts the clock, so that no side pays for the other's.
func timed(work func() (files int, bytes int64, err error)) side {
	return func() (p pass, err error) {
		runtime.GC()
		start, cpu := time.Now(), cpuTime()
		p.files, p.bytes, err = work()
		p.wall, p.cpu = float64(time.Since(start)), float64(cpuTime()-cpu)
		return p, err
	}
}

// cpuTime returns the user and system time of the whole process.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are constants
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func process(dir string, opts fileproc.Options) (files int, bytes int64, err error) {
	return processUntil(context.Background(), dir, opts)
}

// processUntil counts per worker, on separate cache lines, so that the counters cost nothing.
func processUntil(ctx context.Context, dir string, opts fileproc.Options) (files int, bytes int64, err error) {
	if opts.Workers == 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
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

func entries(list []fs.DirEntry, err error) (int, int64, error) { return len(list), 0, err }

func walkDir(dir string) (files int, bytes int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		files++
		bytes += int64(len(data))
		return err
	})
	return files, bytes, err
}

func readDir(dir string) (files int, bytes int64, err error) {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return files, bytes, err
		}
		files++
		bytes += int64(len(data))
	}
	return files, bytes, err
}

// runSmall compares the cost of a call in small directories, where the set-up matters. A pass repeats the call until it has
// read about 2,000 files.
func runSmall(pairs, passes int, p printer) error {
	tmp, err := os.MkdirTemp("", "floor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	p.header(pairs, passes)
	for _, n := range []int{1, 2, 3, 5, 10, 100} {
		dir := filepath.Join(tmp, fmt.Sprint(n))
		if err := writeFiles(dir, n); err != nil {
			return err
		}
		calls := 2000 / n
		ours := repeated(calls, func() (int, int64, error) { return process(dir, fileproc.Options{}) })
		theirs := repeated(calls, func() (int, int64, error) { return readDir(dir) })
		c := comparison{fmt.Sprintf("%d files / ReadDir + ReadFile", n), ours, theirs}
		if err := p.compare(pairs, passes, c); err != nil {
			return err
		}
	}
	return nil
}

func repeated(calls int, work func() (int, int64, error)) side {
	return timed(func() (files int, bytes int64, err error) {
		for range calls {
			f, b, err := work()
			if err != nil {
				return files, bytes, err
			}
			files += f
			bytes += b
		}
		return files, bytes, nil
	})
}
