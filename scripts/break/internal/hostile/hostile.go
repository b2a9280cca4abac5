//go:build linux

// Package hostile runs fileproc on a tree while a racer swaps its links, FIFOs, devices and directories.
package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/fileproc/fileproc/scripts/break/internal/trial"
)

// Main is the command hostile.
func Main(ctx context.Context, args []string) error {
	flags := trial.NewFlags("hostile")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return flags.Temp(func(dir string) error { return hostile(ctx, flags, dir) })
}

const (
	secret     = "SECRET: this file is outside root\n"
	fifoSecret = "SECRET: these bytes are in a FIFO\n"
)

// A tree is a directory with root, what runs read; outside, which they must not read; and aside, where the racer keeps what it
// swaps into root.
type tree struct {
	root    string
	calm    map[string]bool // files that no swap moves or hides, by path relative to root
	bodies  map[string]bool // the contents of all files that began in root
	swapped []string        // paths of directories, files and links at every depth
}

// plant makes a tree. Outside has the same names as root, so that a link in a directory's place finds something.
func plant(dir string) (*tree, error) {
	t := &tree{root: filepath.Join(dir, "root"), calm: map[string]bool{}, bodies: map[string]bool{}}
	var rels []string
	links := map[string]string{}
	var fill func(rel string, depth int)
	fill = func(rel string, depth int) {
		for i := range 4 {
			rels = append(rels, fmt.Sprintf("%sf%d", rel, i))
		}
		for i := 0; i < 3 && depth < 4; i++ {
			sub := fmt.Sprintf("%sd%d/", rel, i)
			fill(sub, depth+1)
			t.swapped = append(t.swapped, filepath.Join(t.root, sub))
		}
		// Links to follow: to a file and to directories of the tree, through directories that the racer swaps.
		for i, to := range []string{"f0", "d1/d2/f1", "d1/d2"} {
			links[filepath.Join(t.root, fmt.Sprintf("%sl%d", rel, i))] = filepath.Join(t.root, to)
		}
	}
	fill("", 1)
	for _, rel := range rels {
		t.swapped = append(t.swapped, filepath.Join(t.root, rel))
	}
	for i := range 300 {
		rels = append(rels, fmt.Sprintf("calm%d/f%03d", i%4, i))
		t.calm[rels[len(rels)-1]] = true
	}
	err := errors.Join(trial.Write(t.root, testtree.BytesOf, rels...),
		trial.Write(filepath.Join(dir, "outside"), func(string) []byte { return []byte(secret) }, rels...))
	for _, rel := range rels {
		t.bodies[string(testtree.BytesOf(rel))] = true
	}
	for link, to := range links {
		t.swapped = append(t.swapped, link)
		err = errors.Join(err, os.Symlink(to, link))
	}
	slices.Sort(t.swapped)
	return t, err
}

// newRun returns a run over a tree that is being swapped.
func (t *tree) newRun(random *rand.Rand, flags *trial.Flags) *trial.Run {
	r := &trial.Run{Root: t.root, Entry: trial.Pick(random, "Process", "Process", "Stream", "Walk"), Opts: trial.Options(random)}
	r.Opts.MaxFileSize = 1 << 20 // a device that is read has no end
	r.Opts.Symlinks = trial.Pick(random, fileproc.SymlinksSkip, fileproc.SymlinksSkip, fileproc.SymlinksFiles, fileproc.SymlinksFollow)
	r.Opts.SymlinksOutside = r.Opts.Symlinks != fileproc.SymlinksSkip && random.Intn(8) == 0
	if r.Entry != "Process" && r.Opts.Symlinks == fileproc.SymlinksFollow {
		r.Opts.Ordered = false // the targets of links come last
	}
	r.Opts.OneFilesystem = random.Intn(8) == 0
	if random.Intn(8) == 0 {
		r.Opts.IgnoreFiles = []string{".gitignore", "f9"}
	}
	if r.Opts.SymlinksOutside { // one of the links is to /etc and one to the directory of the test
		r.Opts.MaxDepth = 3
	}
	r.Want, r.May = t.calm, func(string) bool { return true }
	open := random.Intn(4) == 0
	r.File = func(f *fileproc.File, _ *trial.Answer) error {
		flags.Count("contents", 1)
		if err := t.check(r, f, open); err != nil {
			r.Wrong(err)
		}
		return nil
	}
	r.Failure = func(rel string, err error) error {
		calm := strings.HasPrefix(rel, "calm") && (t.calm[rel] || !strings.Contains(rel, "/"))
		if calm || r.Opts.Symlinks == fileproc.SymlinksSkip && !errors.Is(err, fileproc.ErrChanged) {
			return err
		}
		return nil
	}
	return r
}

// check returns what is wrong with f, which it opens once more if open is set.
func (t *tree) check(r *trial.Run, f *fileproc.File, open bool) error {
	calm := t.calm[f.Rel()]
	if calm {
		if err := r.Check(f, testtree.BytesOf(f.Rel())); err != nil {
			return err
		}
	}
	if s, err := f.Stat(); r.Opts.Stat && (err != nil || !s.Mode.IsRegular()) {
		return fmt.Errorf("%s: Stat returns %v, %w", f.Rel(), s.Mode, err)
	}
	if r.Opts.ReadSize != fileproc.NoRead {
		if err := t.content(r, f.Data(), !f.Truncated()); err != nil {
			return fmt.Errorf("%s: %w", f.Rel(), err)
		}
	}
	if !open {
		return nil
	}
	file, err := f.Open()
	if err != nil && !calm {
		return nil
	}
	var data []byte
	if err == nil {
		defer file.Close()
		data, err = io.ReadAll(file)
	}
	if err = errors.Join(err, t.content(r, data, true)); err != nil || calm && !bytes.Equal(data, testtree.BytesOf(f.Rel())) {
		return fmt.Errorf("%s, through Open: %d bytes, %w", f.Rel(), len(data), err)
	}
	return nil
}

// content returns an error if no file that began in root has data as its content, or, unless all is set, as its first bytes.
func (t *tree) content(r *trial.Run, data []byte, all bool) error {
	switch {
	case bytes.Contains(data, []byte(fifoSecret)):
		return errors.New("bytes of a FIFO")
	case r.Opts.SymlinksOutside:
		return nil // outside may be read
	case bytes.Contains(data, []byte("SECRET")) || bytes.Contains(data, []byte("root:")):
		return fmt.Errorf("LEAKED from outside root: %.60q", data)
	case t.bodies[string(data)]:
		return nil
	}
	for body := range t.bodies {
		if !all && strings.HasPrefix(body, string(data)) {
			return nil
		}
	}
	return fmt.Errorf("%d bytes that no file of root has: %.60q", len(data), data)
}

func hostile(ctx context.Context, flags *trial.Flags, dir string) error {
	t, err := plant(dir)
	if err != nil {
		return err
	}
	racer, err := newRacer(dir, t, flags)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(2 + runtime.GOMAXPROCS(0)) // the racer never waits
	err = flags.Against(ctx, math.MaxInt, 1, racer.swap, func(random *rand.Rand, _ int, still sync.Locker) (any, error) {
		flags.Count("runs", 1)
		r := t.newRun(random, flags)
		r.Still = still
		return r, r.Do(ctx)
	})
	if err != nil {
		return err
	}
	said := make([]byte, 2*len(fifoSecret))
	if n, err := racer.fifo.Read(said); string(said[:n]) != fifoSecret {
		return fmt.Errorf("somebody has read from the FIFO or written to it: %q, %w", said[:n], err)
	}
	return nil
}
