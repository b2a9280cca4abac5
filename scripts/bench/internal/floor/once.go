//go:build linux

package floor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
)

// onceReadSize is the size of the C loop's reads in -case once, in bytes. It reads whole files, as fileproc does.
const onceReadSize = 64 << 10

var onceSides = []string{"fileproc", "fileproc-stat", "fileproc-again", "c", "c-order", "c-stat", "c-stat-order"}

// runOnce prints one pass of one side as a line of JSON, without a pass before it to warm up. With cancel, a run of fileproc is
// cancelled so long after its beginning, and the seconds are those from there to its end: 0 if it has ended before.
func runOnce(dir, name, cache string, threads int, cancel time.Duration, prepared func(side) side) error {
	if !slices.Contains(onceSides, name) {
		return fmt.Errorf("unknown side %q: want one of %v", name, onceSides)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var s side
	switch name {
	case "fileproc", "fileproc-stat":
		opts := fileproc.Options{}
		if name == "fileproc-stat" {
			opts = fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}
		}
		s = timed(func() (int, int64, error) {
			if cancel >= 0 {
				time.AfterFunc(cancel, stop)
			}
			return processUntil(ctx, dir, opts)
		})
	case "fileproc-again":
		if err := os.Chdir(dir); err != nil { // the cache file is for a root of this name
			return err
		}
		s = timed(func() (int, int64, error) {
			inc := incremental.Options[int]{File: cache}
			sizes, err := incremental.Process(context.Background(), ".", inc, fileproc.Options{}, func(f *fileproc.File) (int, error) { return len(f.Data()), nil })
			return len(sizes), 0, err
		})
	default:
		c, err := startCLoop(dir, threads)
		if err != nil {
			return err
		}
		defer c.close()
		mode := map[string]string{"c": "whole", "c-order": "order", "c-stat": "stat", "c-stat-order": "stat-order"}[name]
		if s = c.side(mode, onceReadSize); s == nil {
			return fmt.Errorf("-side %s needs a C compiler", name)
		}
	}
	p, err := prepared(s)()
	if cancel >= 0 && (err == nil || errors.Is(err, context.Canceled)) {
		p.wall, err = max(0, p.wall-float64(cancel)), nil
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(struct {
		Files   int     `json:"files"`
		Bytes   int64   `json:"bytes"`
		Seconds float64 `json:"seconds"`
	}{p.files, p.bytes, p.wall / 1e9})
}
