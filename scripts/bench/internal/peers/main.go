//go:build linux

// Package peers measures fileproc and other ways to read all files of a set, which the command tickets has made, on the same data
// and in interleaved rounds. A side that does not see all of its files and bytes is left out, and a record gives the reason.
package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/bench/internal/readers"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

// Tables are the tables, and what makes their sides.
var Tables = map[string]func(*set) ([]turns.Side, error){
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
	build, count string // flags of the command
}

// Compare measures a table on the set in dir, and prints records of passes over at least minFiles: a small set is processed several
// times.
func Compare(ctx context.Context, m turns.Measurement, table, dir, build, count string) error {
	const minFiles = 20_000
	return fail.Try(func() {
		s := fail.Must(openSet(dir))
		s.ctx, s.calls, s.build, s.count = ctx, max(1, minFiles/s.files), build, count
		if m.Before != nil {
			s.calls = 1
		}
		m.Table, m.Data, m.Passes, m.Records, m.LeaveOut = table, s.name, 1, true, true
		err := m.Compare(ctx, turns.Comparison{Sides: fail.Must(Tables[table](s))})
		fail.If(err != nil, "%s: %s: %w", table, s.name, err)
	})
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
