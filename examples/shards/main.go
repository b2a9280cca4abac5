// Command shards counts the lines of the files below a directory, by suffix,
// with several processes that each take one shard, and adds up what they found.
//
//	shards DIR                     # 4 processes on this machine
//	shards -shards 8 DIR           # 8 processes
//	shards -shards 8 -shard 2 DIR  # one part of eight: prints JSON, to be added up elsewhere
//
// On one machine leave it: one process keeps all cores busy. Shards are for a
// few machines that share a file system, with files that take some work each.
// Every shard lists the whole tree, so 64 machines list it 64 times, and the
// file server answers for each. For many machines let one process list the
// tree once, with fileproc.Walk, and hand out batches of paths.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"sync"

	"github.com/fileproc/fileproc"
)

var (
	shard  = flag.Int("shard", -1, "process this part alone, from 0, and print JSON")
	shards = flag.Int("shards", 4, "number of parts")
)

// lines has the number of lines for each suffix.
type lines map[string]int

func main() {
	flag.Parse()
	if flag.NArg() != 1 || *shards < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run prints what was counted also if there is an error, which is about the rest.
func run(dir string) error {
	if *shard >= 0 {
		total, err := count(dir)
		return errors.Join(json.NewEncoder(os.Stdout).Encode(total), err)
	}
	total, err := inProcesses(dir)
	for _, suffix := range slices.Sorted(maps.Keys(total)) {
		fmt.Printf("%d\t%s\n", total[suffix], suffix)
	}
	return err
}

// count does one part. Processes that share a machine need one worker each; on
// a machine of its own, leave Workers out.
func count(dir string) (lines, error) {
	type file struct {
		suffix string
		lines  int
	}
	opts := fileproc.Options{SkipHidden: true, SkipBinary: true, Workers: 1, Shard: *shard, Shards: *shards}
	total, failed := lines{}, 0
	for f, err := range fileproc.Stream(context.Background(), dir, opts, func(f *fileproc.File) (file, error) {
		return file{path.Ext(f.Name()), bytes.Count(f.Data(), []byte("\n"))}, nil
	}) {
		if err != nil { // this file's; the others still count
			fmt.Fprintln(os.Stderr, err)
			failed++
			continue
		}
		total[f.suffix] += f.lines
	}
	if failed > 0 {
		return total, fmt.Errorf("files or directories that could not be read: %d", failed)
	}
	return total, nil
}

// inProcesses runs this program once for each part, and adds up what they
// print. A part may fail and still have counted all but a few files.
func inProcesses(dir string) (lines, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var (
		wg    sync.WaitGroup
		parts = make([]lines, *shards)
		errs  = make([]error, *shards)
	)
	for i := range *shards {
		wg.Go(func() {
			cmd := exec.Command(self, "-shard", strconv.Itoa(i), "-shards", strconv.Itoa(*shards), "--", dir)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err = errors.Join(err, json.Unmarshal(out, &parts[i])); err != nil {
				errs[i] = fmt.Errorf("shard %d of %d: %w", i, *shards, err)
			}
		})
	}
	wg.Wait()
	total := lines{}
	for _, part := range parts {
		for suffix, n := range part {
			total[suffix] += n
		}
	}
	return total, errors.Join(errs...)
}
