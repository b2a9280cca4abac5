//go:build linux

package floor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/scripts/bench/internal/readers"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
	"github.com/fileproc/fileproc/scripts/internal/turns"
	"github.com/goccy/go-yaml"
)

const (
	changedOf = 100     // of so many files one changes
	named     = 100     // files that are named
	mostYAML  = 200_000 // files that are parsed
)

func size(f *fileproc.File) (int, error) { return len(f.Data()), nil }

// parsed parses the YAML of a ticket and returns the ticket's size.
func parsed(f *fileproc.File) (int, error) {
	text, err := tickets.Frontmatter(f.Data())
	if err != nil {
		return 0, err
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

// again compares runs of package incremental with full runs: with a function that does nearly nothing, and with one that
// parses the YAML at the beginning of a ticket. Before each pass with changes it touches other files of the set.
func (r *run) again() error {
	r.Passes = 1
	tmp, err := r.temp("")
	if err != nil {
		return err
	}
	cache := filepath.Join(tmp, "cache")
	var files []string
	for e, err := range fileproc.Walk(r.ctx, r.dir, fileproc.Options{}) {
		if err != nil {
			return err
		} else if e.Type().IsRegular() {
			files = append(files, e.Rel())
		}
	}
	some, round := files[:min(named, len(files))], 0
	_, total, err := readers.Fileproc(r.ctx, r.dir, metadata)()
	if err != nil {
		return err
	}
	touch := func() error {
		now := time.Now()
		for i := round % changedOf; i < len(files); i += changedOf {
			if err := os.Chtimes(filepath.Join(r.dir, files[i]), now, now); err != nil {
				return err
			}
		}
		round++
		time.Sleep(2100 * time.Millisecond) // until the files are so old that their results are kept
		return nil
	}
	for _, fn := range []struct {
		name string
		call func(*fileproc.File) (int, error)
	}{{"the size", size}, {"YAML", parsed}} {
		if fn.name == "YAML" && len(files) > mostYAML {
			break
		}
		inc := incremental.Options[int]{File: cache, Version: fn.name}
		full := turns.Work(func() (int, int64, error) {
			return sum(fileproc.Process(r.ctx, r.dir, fileproc.Options{}, fn.call))
		}).Side("")
		again := turns.Work(func() (int, int64, error) {
			return sum(incremental.Process(r.ctx, r.dir, inc, fileproc.Options{}, fn.call))
		}).Side("")
		names := turns.Work(func() (int, int64, error) {
			inc := inc
			inc.Deleted = func(string) {}
			_, err := incremental.Process(r.ctx, r.dir, inc, fileproc.Options{Files: slices.Values(some)}, fn.call)
			return len(files), total, err // as if for all, so that the times can be compared
		}).Side("")
		if _, err := again.Pass(); err != nil {
			return err
		}
		err := r.compare(
			turns.Against("metadata alone / a full run", r.fileproc(metadata), full),
			turns.Against(fmt.Sprintf("%s, %d named / a full run", fn.name, named), names, full),
			turns.Against(fn.name+", 1 % changed / a full run", again.After(touch), full),
			turns.Against(fn.name+", nothing changed / a full run", again, full),
			turns.Against(fn.name+", the first run / a full run", again.After(func() error { return os.RemoveAll(cache) }), full))
		if err != nil {
			return err
		}
	}
	return nil
}

// onceAgain is for a cache file of a root with the name ".".
func (r *run) onceAgain() turns.Side {
	return turns.Work(func() (int, int64, error) {
		sizes, err := incremental.Process(r.ctx, ".", incremental.Options[int]{File: r.cache}, fileproc.Options{}, size)
		return len(sizes), 0, err
	}).Side("").After(func() error { return os.Chdir(r.dir) })
}

func sum(sizes []int, err error) (files int, bytes int64, _ error) {
	for _, n := range sizes {
		bytes += int64(n)
	}
	return len(sizes), bytes, err
}
