package peers

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/boyter/gocodewalker"
	"github.com/charlievieth/fastwalk"
	"github.com/iafan/cwalk"
	"github.com/karrick/godirwalk"
	"github.com/saracen/walker"

	"github.com/fileproc/fileproc"
)

// peerSides returns the sides of the table peers. Every peer walks with its defaults, except that it skips and sorts nothing.
// Each file is read with os.ReadFile, in the callback if there is one, as the peer's users do.
func peerSides(s set) ([]side, error) {
	return []side{
		s.files("fileproc", "", fileprocWith(fileproc.Options{})),
		s.files("WalkDir + ReadFile", runtime.Version(), walkDir),
		s.files("ReadDir + goroutine pool", runtime.Version(), poolOf(runtime.GOMAXPROCS(0))),
		s.files("charlievieth/fastwalk", version("github.com/charlievieth/fastwalk"), fastWalk),
		s.files("karrick/godirwalk", version("github.com/karrick/godirwalk"), goDirWalk),
		s.files("iafan/cwalk", version("github.com/iafan/cwalk"), cWalk),
		s.files("saracen/walker", version("github.com/saracen/walker"), saracenWalk),
		s.files("boyter/gocodewalker", version("github.com/boyter/gocodewalker"), goCodeWalk),
	}, nil
}

// A reader reads every file under dir and counts files and bytes in c.
type reader func(dir string, c *counter) error

// files returns a side that must see all files and bytes of the set.
func (s set) files(who, version string, read reader) side {
	return side{who: who, version: version, want: &tally{int64(s.Files), s.Bytes}, call: func() (tally, error) {
		var c counter
		err := read(s.dir, &c)
		return tally{c.files.Load(), c.bytes.Load()}, err
	}}
}

// version returns the version of the module in this build, which is the one that is measured.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, m := range info.Deps {
			if m.Path == module {
				return m.Version
			}
		}
	}
	return ""
}

type counter struct{ files, bytes atomic.Int64 }

func (c *counter) add(data []byte) {
	c.files.Add(1)
	c.bytes.Add(int64(len(data)))
}

func (c *counter) readFile(path string) error {
	data, err := os.ReadFile(path)
	if err == nil {
		c.add(data)
	}
	return err
}

func fileprocWith(opts fileproc.Options) reader {
	return func(dir string, c *counter) error {
		_, err := fileproc.Process(context.Background(), dir, opts, func(f *fileproc.File) (struct{}, error) {
			c.add(f.Data())
			return struct{}{}, nil
		})
		return err
	}
}

// walkDirFunc is a callback for filepath.WalkDir and fastwalk.
func (c *counter) walkDirFunc(path string, d fs.DirEntry, err error) error {
	if err != nil || !d.Type().IsRegular() {
		return err
	}
	return c.readFile(path)
}

func walkDir(dir string, c *counter) error { return filepath.WalkDir(dir, c.walkDirFunc) }

func fastWalk(dir string, c *counter) error {
	return fastwalk.Walk(&fastwalk.Config{}, dir, c.walkDirFunc)
}

func goDirWalk(dir string, c *counter) error {
	return godirwalk.Walk(dir, &godirwalk.Options{Unsorted: true, Callback: func(path string, d *godirwalk.Dirent) error {
		if !d.IsRegular() {
			return nil
		}
		return c.readFile(path)
	}})
}

// cWalk joins paths, because cwalk passes them relative to dir.
func cWalk(dir string, c *counter) error {
	return cwalk.Walk(dir, func(rel string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		return c.readFile(filepath.Join(dir, rel))
	})
}

func saracenWalk(dir string, c *counter) error {
	return walker.Walk(dir, func(path string, info os.FileInfo) error {
		if !info.Mode().IsRegular() {
			return nil
		}
		return c.readFile(path)
	})
}

func goCodeWalk(dir string, c *counter) error {
	files := make(chan *gocodewalker.File, 100) // as in its README
	w := gocodewalker.NewFileWalker(dir, files)
	w.IgnoreIgnoreFile, w.IgnoreGitIgnore, w.IgnoreGitModules, w.IncludeHidden = true, true, true, true
	var failed error
	walked := make(chan struct{})
	go func() { // Start closes files when it has listed everything
		failed = w.Start()
		close(walked)
	}()
	paths := func(yield func(string) bool) {
		for f := range files {
			yield(f.Location)
		}
	}
	err := readPool(runtime.GOMAXPROCS(0), paths, c)
	<-walked
	return errors.Join(failed, err)
}

// poolOf returns a reader that lists directories with os.ReadDir in one goroutine, and reads files in several.
func poolOf(goroutines int) reader {
	return func(dir string, c *counter) error {
		var failed error
		paths := func(yield func(string) bool) { failed = list(dir, yield) }
		err := readPool(goroutines, paths, c)
		return errors.Join(failed, err)
	}
}

func list(dir string, yield func(string) bool) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			if err := list(path, yield); err != nil {
				return err
			}
		case e.Type().IsRegular():
			yield(path)
		}
	}
	return err
}

// readPool reads the files that paths yields. It continues after a failure, so that the yielding side never blocks forever.
func readPool(goroutines int, paths func(func(string) bool), c *counter) error {
	queue := make(chan string, 128) // for performance: neither side waits for each path
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for path := range queue {
				if err := c.readFile(path); err != nil {
					errs[i] = err
				}
			}
		})
	}
	paths(func(path string) bool {
		queue <- path
		return true
	})
	close(queue)
	wg.Wait()
	return errors.Join(errs...)
}
