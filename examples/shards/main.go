// Command shards counts the lines of the files below a directory by suffix. It
// runs several processes, one for each shard, and adds up their counts.
//
//	shards DIR                     # 4 processes on this machine
//	shards -shards 8 DIR           # 8 processes
//	shards -shards 8 -shard 2 DIR  # one shard of eight: prints JSON
//	cat *.json | shards -add       # adds up what the shards have printed, if all are there
//
// With slurm.sh and job.yaml it runs on the machines of a Slurm cluster or of Kubernetes.
//
// A single machine needs no shards: one process keeps all cores busy. Shards
// are for a few machines that share a file system, with files that take some
// work each. Leave them when the listing takes a good part of the time, since every
// shard lists the whole tree; when the shards take unequal times; or when a failure
// must cost less than a whole shard. docs/many-machines.md says what to use then.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
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
	shard  = flag.Int("shard", -1, "process only this `shard`, counted from 0, and print JSON")
	shards = flag.Int("shards", 4, "`number` of shards")
	add    = flag.Bool("add", false, "add up what shards have printed, from standard input")
)

// lines maps each suffix to its number of lines.
type lines map[string]int

// A part is what a shard prints.
type part struct {
	Shard, Shards int
	Failed        int // files and directories that are not counted
	Lines         lines
}

func main() {
	flag.Parse()
	dirs := 1
	if *add {
		dirs = 0
	}
	if flag.NArg() != dirs || *shards < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run prints the counts also if there is an error, which concerns only the files
// that were not counted.
func run(dir string) error {
	if *shard >= 0 {
		p, err := count(dir)
		return errors.Join(json.NewEncoder(os.Stdout).Encode(p), err)
	}
	var total lines
	var err error
	if *add {
		total, err = addUp(os.Stdin)
	} else {
		total, err = inProcesses(dir)
	}
	for _, suffix := range slices.Sorted(maps.Keys(total)) {
		fmt.Printf("%d\t%s\n", total[suffix], suffix)
	}
	return err
}

// count processes one shard. Processes that share a machine need one worker
// each; for one process per machine, leave Workers unset.
func count(dir string) (part, error) {
	type file struct {
		suffix string
		lines  int
	}
	opts := fileproc.Options{SkipHidden: true, SkipBinary: true, Workers: 1, Shard: *shard, Shards: *shards}
	p := part{Shard: *shard, Shards: *shards, Lines: lines{}}
	for f, err := range fileproc.Stream(context.Background(), dir, opts, func(f *fileproc.File) (file, error) {
		return file{path.Ext(f.Name()), bytes.Count(f.Data(), []byte("\n"))}, nil
	}) {
		if err != nil { // one file failed; the others still count
			fmt.Fprintln(os.Stderr, err)
			p.Failed++
			continue
		}
		p.Lines[f.suffix] += f.lines
	}
	if p.Failed > 0 {
		return p, fmt.Errorf("files or directories that could not be read: %d", p.Failed)
	}
	return p, nil
}

// inProcesses runs this program once for each shard and adds up the printed
// counts. A shard that fails may still have counted all but a few files.
func inProcesses(dir string) (lines, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var (
		wg    sync.WaitGroup
		parts = make([]part, *shards)
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
	for _, p := range parts {
		total.add(p.Lines)
	}
	return total, errors.Join(errs...)
}

// addUp adds up the counts that shards have printed. It fails if they are not those of all shards, each once and whole.
func addUp(r io.Reader) (lines, error) {
	total, seen := lines{}, map[int]int{}
	var errs []error
	shards := 1
	for in := json.NewDecoder(r); ; {
		var p part
		if err := in.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return total, fmt.Errorf("standard input: %w", err)
		}
		if len(seen) > 0 && p.Shards != shards {
			return total, fmt.Errorf("standard input: one shard of %d, and one of %d", shards, p.Shards)
		}
		shards = p.Shards
		seen[p.Shard]++
		if p.Failed > 0 {
			errs = append(errs, fmt.Errorf("shard %d of %d: files or directories that could not be read: %d", p.Shard, shards, p.Failed))
		}
		total.add(p.Lines)
	}
	for i := range shards {
		if seen[i] != 1 {
			errs = append(errs, fmt.Errorf("shard %d of %d is there %d times: want it once", i, shards, seen[i]))
		}
	}
	return total, errors.Join(errs...)
}

func (l lines) add(other lines) {
	for suffix, n := range other {
		l[suffix] += n
	}
}
