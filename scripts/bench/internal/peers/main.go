//go:build linux

// Package peers measures fileproc and other ways to read all files of a directory, on the same data and in interleaved
// rounds. It prints a record of each pass, from which scripts/bench_report.sh makes tables and plots:
//
//	bench peers -table peers -rounds 9 DIR...
//
// DIR is a set made by the command tickets. A side that does not see all of its files and bytes is excluded, and a record gives
// the reason. Built with one of fileproc's tags, bench measures that backend.
package peers

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/bench/internal/readers"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

// tables are the values of -table, and what makes their sides.
var tables = map[string]func(*set) ([]turns.Side, error){
	"peers": peerSides, "programs": programSides, "backends": backendSides, "sizes": sizeSides, "workers": workerSides,
	"ablation": ablationSides, "readdir": readDirSides,
}

// A set is a directory, and what is in it.
type set struct {
	ctx          context.Context
	dir, name    string
	files        int
	bytes        int64
	calls        int    // in a pass
	build, count string // the flags -build and -count
}

// Main is the command peers.
func Main(ctx context.Context, args []string) error {
	names := slices.Sorted(maps.Keys(tables))
	flags := flag.NewFlagSet("bench peers", flag.ContinueOnError)
	table := flags.String("table", "peers", "`table` to measure: "+strings.Join(names, ", "))
	rounds := flags.Int("rounds", 9, "interleaved `rounds`")
	minFiles := flags.Int("files", 20_000, "minimum number of `files` of a pass: a small set is processed several times")
	cold := flags.Bool("cold", false, "as root: drop the caches before each pass, which is of one call")
	build := flags.String("build", fileproc.Backend(), "`name` of this build in the table backends")
	count := flags.String("count", "", "`path` of the built command count, for the table programs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case tables[*table] == nil:
		return fmt.Errorf("unknown table %q: want one of %v", *table, names)
	case flags.NArg() == 0:
		return errors.New("want at least one directory made by the command tickets")
	case *rounds < 1 || *minFiles < 1:
		return errors.New("-rounds and -files must be at least 1")
	}
	for _, dir := range flags.Args() {
		s, err := openSet(dir)
		if err != nil {
			return err
		}
		s.ctx, s.calls, s.build, s.count = ctx, max(1, *minFiles/s.files), *build, *count
		m := turns.Measurement{Table: *table, Data: s.name, Rounds: *rounds, Passes: 1, Out: os.Stdout, Records: true, LeaveOut: true}
		if *cold {
			s.calls, m.Before = 1, readers.DropCaches
		}
		sides, err := tables[*table](s)
		if err == nil {
			err = m.Compare(ctx, turns.Comparison{Sides: sides})
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", *table, s.name, err)
		}
	}
	return nil
}

// proc is the one directory that is not a set. Its entries change during a measurement.
const proc = "/proc"

func openSet(dir string) (*set, error) {
	path, name, err := readers.Set(dir)
	if err != nil {
		return nil, err
	}
	if dir == proc {
		list, err := os.ReadDir(dir)
		return &set{dir: path, name: name, files: len(list)}, err
	}
	manifest := filepath.Clean(dir) + ".json"
	text, err := os.ReadFile(manifest)
	if err != nil {
		return nil, fmt.Errorf("%w: make the set and its manifest with scripts/tickets", err)
	}
	var m tickets.Manifest
	if err := json.Unmarshal(text, &m); err != nil || m.Count < 1 {
		return nil, fmt.Errorf("%s: not a manifest of a set (%v)", manifest, err)
	}
	return &set{dir: path, name: name, files: m.Count, bytes: m.Bytes}, nil
}

// side returns a side that must see so many files and bytes. Its passes are of the files of the set, whatever it counts.
func (s *set) side(who, version string, files int, bytes int64, work turns.Work) turns.Side {
	right := turns.Pass{Files: files, Bytes: bytes}
	checked := turns.Work(func() (int, int64, error) {
		files, bytes, err := work()
		if err == nil && s.dir != proc {
			err = turns.Pass{Files: files, Bytes: bytes}.Same(right)
		}
		if err != nil { // records must not contain paths of the machine
			err = errors.New(strings.ReplaceAll(err.Error(), s.dir, s.name))
		}
		return s.files, 0, err
	})
	side := checked.Times(s.calls).Side(who)
	side.Version = version
	return side
}

// reader returns a side that must read all files of the set.
func (s *set) reader(who, version string, work turns.Work) turns.Side {
	return s.side(who, version, s.files, s.bytes, work)
}

func (s *set) fileproc(who string, opts fileproc.Options) turns.Side {
	return s.reader(who, "", readers.Fileproc(s.ctx, s.dir, opts))
}
