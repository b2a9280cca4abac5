//go:build linux

package floor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/goccy/go-yaml"
)

// changedOf is of how many files one has changed since the last run, in -case again.
const changedOf = 100

// mostYAML is the largest set that is parsed.
const mostYAML = 200_000

// runAgain compares runs of package incremental with full runs: with a function that does nearly nothing, and with one that
// parses the YAML at the beginning of a ticket. Before each pass with changes it touches other files of the set.
func runAgain(dir string, pairs int, p printer) error {
	tmp, err := os.MkdirTemp("", "floor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	set := &changing{ctx: context.Background(), dir: dir}
	err = fileproc.ForEach(set.ctx, dir, fileproc.Options{ReadSize: fileproc.NoRead, Stat: true, Workers: 1}, func(f *fileproc.File) error {
		s, err := f.Stat()
		set.paths = append(set.paths, f.Path())
		set.bytes += s.Size
		return err
	})
	if err != nil {
		return err
	}
	size := func(f *fileproc.File) (int, error) { return len(f.Data()), nil }
	p.header(pairs, 1)
	metadata := timed(func() (int, int64, error) {
		all, _, err := sum(fileproc.Process(set.ctx, dir, fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}, size))
		return all, set.bytes, err
	})
	for _, fn := range []struct {
		name string
		call func(*fileproc.File) (int, error)
	}{{"the size", size}, {"YAML", parsed}} {
		full := timed(func() (int, int64, error) { return sum(fileproc.Process(set.ctx, dir, fileproc.Options{}, fn.call)) })
		again := timed(func() (int, int64, error) {
			inc := incremental.Options[int]{File: filepath.Join(tmp, "cache"), Version: fn.name}
			return sum(incremental.Process(set.ctx, dir, inc, fileproc.Options{}, fn.call))
		})
		if fn.name == "YAML" && len(set.paths) > mostYAML {
			break
		}
		first := func() (pass, error) {
			if err := os.RemoveAll(filepath.Join(tmp, "cache")); err != nil {
				return pass{}, err
			}
			return again()
		}
		if _, err := again(); err != nil {
			return err
		}
		named := timed(func() (int, int64, error) {
			inc := incremental.Options[int]{File: filepath.Join(tmp, "cache"), Version: fn.name, Deleted: func(string) {}}
			opts := fileproc.Options{Files: slices.Values(set.names())}
			_, err := incremental.Process(set.ctx, dir, inc, opts, fn.call)
			return len(set.paths), set.bytes, err // as if for all, so that the times can be compared
		})
		err := p.compare(pairs, 1,
			comparison{"metadata alone / a full run", metadata, full},
			comparison{fn.name + ", 100 named / a full run", named, full},
			comparison{fn.name + ", 1 % changed / a full run", set.changedBefore(again), full},
			comparison{fn.name + ", nothing changed / a full run", again, full},
			comparison{fn.name + ", the first run / a full run", first, full},
		)
		if err != nil {
			return err
		}
	}
	return nil
}

func sum(sizes []int, err error) (files int, bytes int64, _ error) {
	for _, n := range sizes {
		bytes += int64(n)
	}
	return len(sizes), bytes, err
}

// parsed parses the YAML of a ticket and returns the ticket's size.
func parsed(f *fileproc.File) (int, error) {
	text, ok := bytes.CutPrefix(f.Data(), []byte("---\n"))
	text, _, found := bytes.Cut(text, []byte("\n---\n"))
	if !ok || !found {
		return 0, errors.New("no ticket")
	}
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return 0, err
	}
	if fields["id"] == nil {
		return 0, fmt.Errorf("no id in %v", fields)
	}
	return len(f.Data()), nil
}

// changing is a set of tickets of which some change.
type changing struct {
	ctx   context.Context
	dir   string
	paths []string
	bytes int64
	round int
}

// names returns the paths of 100 files relative to the directory.
func (c *changing) names() []string {
	var names []string
	for _, path := range c.paths[:min(100, len(c.paths))] {
		names = append(names, strings.TrimPrefix(path, c.dir+"/"))
	}
	return names
}

// changedBefore touches files before each pass of s, and waits until they are so old that their results are kept.
func (c *changing) changedBefore(s side) side {
	return func() (pass, error) {
		now := time.Now()
		for i := c.round % changedOf; i < len(c.paths); i += changedOf {
			if err := os.Chtimes(c.paths[i], now, now); err != nil {
				return pass{}, err
			}
		}
		c.round++
		time.Sleep(2100 * time.Millisecond)
		return s()
	}
}
