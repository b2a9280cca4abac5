// Command shards counts the lines of the files below a directory, by suffix,
// with several processes that each take one shard, and adds up what they found.
//
//	shards DIR                     # 4 processes on this machine
//	shards -shards 8 DIR           # 8 processes
//	shards -shards 8 -shard 2 DIR  # one part of eight: prints JSON, to be added up elsewhere
package main

import (
	"bytes"
	"context"
	"encoding/json"
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

func (l lines) add(other lines) {
	for suffix, n := range other {
		l[suffix] += n
	}
}

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

func run(dir string) error {
	if *shard >= 0 {
		total, err := count(dir)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(total)
	}
	total, err := inProcesses(dir)
	for _, suffix := range slices.Sorted(maps.Keys(total)) {
		fmt.Printf("%d\t%s\n", total[suffix], suffix)
	}
	return err
}

// count does one part. Of processes that share a machine, one worker each is
// enough; on a machine of its own, leave Workers out.
func count(dir string) (lines, error) {
	opts := fileproc.Options{SkipHidden: true, SkipBinary: true, Workers: 1, Shard: *shard, Shards: *shards}
	each, err := fileproc.Process(context.Background(), dir, opts, func(f *fileproc.File) (lines, error) {
		return lines{path.Ext(f.Name()): bytes.Count(f.Data(), []byte("\n"))}, nil
	})
	total := lines{}
	for _, l := range each {
		total.add(l)
	}
	return total, err
}

// inProcesses runs this program once for each part, and adds up. A part that
// fails leaves no gap in silence: its error is returned.
func inProcesses(dir string) (lines, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex // guards what follows
		total = lines{}
	)
	for i := range *shards {
		wg.Go(func() {
			cmd := exec.Command(self, "-shard", strconv.Itoa(i), "-shards", strconv.Itoa(*shards), "--", dir)
			cmd.Stderr = os.Stderr
			out, failed := cmd.Output()
			var part lines
			if failed == nil {
				failed = json.Unmarshal(out, &part)
			}
			mu.Lock()
			defer mu.Unlock()
			if failed != nil {
				err = fmt.Errorf("shard %d of %d: %w", i, *shards, failed)
			}
			total.add(part)
		})
	}
	wg.Wait()
	return total, err
}
