//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
)

// onceReadSize is the size of the C loop's reads in -case once, in bytes. It reads whole files, as fileproc does.
const onceReadSize = 64 << 10

var onceSides = []string{"fileproc", "fileproc-stat", "fileproc-again", "c", "c-order", "c-stat", "c-stat-order"}

// runOnce prints one pass of one side as a line of JSON, without a pass before it to warm up.
func runOnce(dir, name, cache string, threads int, prepared func(side) side) error {
	if !slices.Contains(onceSides, name) {
		return fmt.Errorf("unknown side %q: want one of %v", name, onceSides)
	}
	var s side
	switch name {
	case "fileproc":
		s = timed(func() (int, int64, error) { return process(dir, fileproc.Options{}) })
	case "fileproc-stat":
		s = timed(func() (int, int64, error) {
			return process(dir, fileproc.Options{ReadSize: fileproc.NoRead, Stat: true})
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
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(struct {
		Files   int     `json:"files"`
		Bytes   int64   `json:"bytes"`
		Seconds float64 `json:"seconds"`
	}{p.files, p.bytes, p.wall / 1e9})
}
