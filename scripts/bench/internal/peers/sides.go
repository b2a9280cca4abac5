//go:build linux

package peers

import (
	"errors"
	"io/fs"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/boyter/gocodewalker"
	"github.com/charlievieth/fastwalk"
	"github.com/iafan/cwalk"
	"github.com/karrick/godirwalk"
	"github.com/saracen/walker"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/bench/internal/readers"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

// peerSides returns the sides of the table peers. Every peer walks with its defaults, except that it skips and sorts nothing.
// Each file is read with os.ReadFile, in the callback if there is one, as the peer's users do.
func peerSides(s *set) ([]turns.Side, error) {
	return []turns.Side{
		s.fileproc("fileproc", fileproc.Options{}),
		s.reader("WalkDir + ReadFile", runtime.Version(), readers.WalkDir(s.dir)),
		s.reader("ReadDir + goroutine pool", runtime.Version(), readers.Pool(runtime.GOMAXPROCS(0), s.dir)),
		s.peer("charlievieth/fastwalk", fastWalk),
		s.peer("karrick/godirwalk", goDirWalk),
		s.peer("iafan/cwalk", cWalk),
		s.peer("saracen/walker", saracenWalk),
		s.peer("boyter/gocodewalker", goCodeWalk),
	}, nil
}

// peer returns a side for a module of GitHub. Its version is the one in this build, which is the one that is measured.
func (s *set) peer(who string, walk func(dir string, read func(path string) error) error) turns.Side {
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/"+who {
				version = m.Version
			}
		}
	}
	return s.reader(who, version, readers.Paths(func(read func(string) error) error { return walk(s.dir, read) }))
}

func fastWalk(dir string, read func(string) error) error {
	return fastwalk.Walk(&fastwalk.Config{}, dir, readers.Regular(read))
}

func goDirWalk(dir string, read func(string) error) error {
	return godirwalk.Walk(dir, &godirwalk.Options{Unsorted: true, Callback: func(path string, d *godirwalk.Dirent) error {
		if d.IsRegular() {
			return read(path)
		}
		return nil
	}})
}

// cWalk joins paths, because cwalk passes them relative to dir.
func cWalk(dir string, read func(string) error) error {
	return cwalk.Walk(dir, func(rel string, info fs.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			return read(filepath.Join(dir, rel))
		}
		return err
	})
}

func saracenWalk(dir string, read func(string) error) error {
	return walker.Walk(dir, func(path string, info fs.FileInfo) error {
		if info.Mode().IsRegular() {
			return read(path)
		}
		return nil
	})
}

func goCodeWalk(dir string, read func(string) error) error {
	files := make(chan *gocodewalker.File, 100) // as in its README
	w := gocodewalker.NewFileWalker(dir, files)
	w.IgnoreIgnoreFile, w.IgnoreGitIgnore, w.IgnoreGitModules, w.IncludeHidden = true, true, true, true
	walked := make(chan error, 1)
	go func() { walked <- w.Start() }() // it closes files when it has listed everything
	err := readers.InPool(runtime.GOMAXPROCS(0), read, func(yield func(string) error) error {
		for f := range files {
			yield(f.Location)
		}
		return nil
	})
	return errors.Join(<-walked, err)
}
