//go:build linux

package floor

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/record"
	"github.com/fileproc/fileproc/scripts/internal/turns"
	"golang.org/x/sys/unix"
)

// replace gives each file of -dir, or of 10,000 files of 4 KiB that it makes, its content anew. Before each pass it syncs what others
// have written.
func (r *run) replace() []record.Record {
	dir := r.dir
	if dir == "" {
		dir = r.temp()
		for i := range 10_000 {
			fail.On(os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%05d.txt", i)), bytes.Repeat([]byte("text"), 1<<10), 0o644))
		}
	}
	quiet := func(w turns.Work) turns.Side {
		return w.Side().After(func() error { unix.Sync(); return nil })
	}
	ours := func(opts fileproc.Options) turns.Side {
		var bytes atomic.Int64
		return quiet(func() (int, int64, error) {
			var report fileproc.Report
			opts.Report = &report
			bytes.Store(0)
			err := fileproc.ForEach(r.ctx, dir, opts, func(f *fileproc.File) error {
				bytes.Add(int64(len(f.Data())))
				return f.Replace(f.Data())
			})
			return int(report.Replaced), bytes.Load(), err
		})
	}
	loop := func(goroutines int, syncs bool) turns.Side {
		return quiet(func() (int, int64, error) {
			var files, bytes atomic.Int64
			err := inPool(goroutines, func(path string) error {
				data, err := os.ReadFile(path)
				files.Add(1)
				bytes.Add(int64(len(data)))
				return cmp.Or(err, rewrite(path, data, syncs))
			}, dir)
			return int(files.Load()), bytes.Load(), err
		})
	}
	plain, durable := ours(fileproc.Options{}), ours(fileproc.Options{Durable: true})
	return r.compare(
		turns.Against("Replace / temporary file and rename on as many goroutines", plain, loop(runtime.GOMAXPROCS(0), false)),
		turns.Against("Replace / temporary file and rename, one at a time", plain, loop(1, false)),
		turns.Against("Replace, durable / not", durable, plain),
		turns.Against("Replace, durable / temporary file, fsync and rename, one at a time", durable, loop(1, true)))
}

// rewrite does what renameio.WriteFile does, which always syncs.
func rewrite(path string, data []byte, syncs bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = cmp.Or(err, f.Chmod(0o644)); err == nil && syncs {
		err = f.Sync()
	}
	if err = cmp.Or(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}
