//go:build linux

package floor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/scripts/bench/internal/readers"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
	"github.com/fileproc/fileproc/scripts/internal/turns"
	"github.com/goccy/go-yaml"
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
func (r *run) again() {
	const changedOf, mostYAML = 100, 200_000 // of so many files one changes; the most files that are parsed
	r.Passes = 1
	tmp := r.temp("")
	var names []string
	for e, err := range fileproc.Walk(r.ctx, r.dir, fileproc.Options{}) {
		fail.On(err)
		if e.Type().IsRegular() {
			names = append(names, e.Rel())
		}
	}
	_, bytes, err := readers.Fileproc(r.ctx, r.dir, metadata)()
	fail.On(err)
	round := 0
	touch := func() (err error) {
		now := time.Now()
		for i := round % changedOf; i < len(names); i += changedOf {
			err = errors.Join(err, os.Chtimes(filepath.Join(r.dir, names[i]), now, now))
		}
		round++
		time.Sleep(2100 * time.Millisecond) // until the files are so old that their results are kept
		return err
	}
	of := func(name string, fn func(*fileproc.File) (int, error)) {
		inc := incremental.Options[int]{File: filepath.Join(tmp, "cache"), Version: name}
		full := turns.Work(func() (int, int64, error) { return sum(fileproc.Process(r.ctx, r.dir, fileproc.Options{}, fn)) }).Side("")
		again := turns.Work(func() (int, int64, error) { return sum(incremental.Process(r.ctx, r.dir, inc, fileproc.Options{}, fn)) }).Side("")
		some := turns.Work(func() (int, int64, error) {
			inc := inc
			inc.Deleted = func(string) {}
			_, err := incremental.Process(r.ctx, r.dir, inc, fileproc.Options{Files: slices.Values(names[:min(100, len(names))])}, fn)
			return len(names), bytes, err // as if for all, so that the times can be compared
		}).Side("")
		fail.Must(again.Pass())
		r.compare(
			turns.Against("metadata alone / a full run", r.fileproc(metadata), full),
			turns.Against(name+", 100 named / a full run", some, full),
			turns.Against(name+", 1 % changed / a full run", again.After(touch), full),
			turns.Against(name+", nothing changed / a full run", again, full),
			turns.Against(name+", the first run / a full run", again.After(func() error { return os.RemoveAll(inc.File) }), full))
	}
	of("the size", size)
	if len(names) <= mostYAML {
		of("YAML", parsed)
	}
}

func sum(sizes []int, err error) (files int, bytes int64, _ error) {
	for _, n := range sizes {
		bytes += int64(n)
	}
	return len(sizes), bytes, err
}
