//go:build linux

package peers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/internal/record"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

func openTestSet(t *testing.T) *set {
	out := t.TempDir()
	made := tickets.Set{Layout: tickets.Flat, Count: 30, Seed: 1}
	_, err := made.Generate(context.Background(), out, nil)
	require.NoError(t, err)
	s, err := openSet(filepath.Join(out, made.Name()))
	require.NoError(t, err)
	s.ctx, s.calls, s.build = context.Background(), 2, "this"
	return s
}

// Every side of every table sees all files of a set, of which a pass has as many as it has calls.
func TestTables(t *testing.T) {
	s := openTestSet(t)
	assert.Equal(t, []any{"flat_30", 30}, []any{s.name, s.files})
	s.count = filepath.Join(t.TempDir(), "count")
	script := "#!/bin/sh\nexec grep -rFc \"$@\"\n"
	require.NoError(t, os.WriteFile(s.count, []byte(script), 0o755))
	_, noGrep := exec.LookPath("grep")
	for name, sides := range Tables {
		if name == "programs" && noGrep != nil {
			t.Logf("left out: programs: %v", noGrep)
			continue
		}
		list, err := sides(s)
		require.NoError(t, err, name)
		require.NotEmpty(t, list, name)
		for _, side := range list {
			if side.Missing != "" {
				t.Logf("left out: %s: %s", side.Name, side.Missing)
				continue
			}
			p, err := side.Pass()
			require.NoError(t, err, "%s: %s", name, side.Name)
			assert.Equal(t, 60, p.Files, "%s: %s", name, side.Name)
		}
	}
	assert.Len(t, Tables, 7)
}

// A side that misses a file is left out, with a reason that has no path of the machine; the first side may not.
func TestLeftOut(t *testing.T) {
	s := openTestSet(t)
	var out bytes.Buffer
	m := turns.Measurement{Table: "peers", Data: s.name, Rounds: 1, Passes: 1, Out: &out, Records: true, LeaveOut: true}
	right := s.reader("right", "v1", func() (int, int64, error) { return s.files, s.bytes, nil })
	fewer := s.reader("fewer", "", func() (int, int64, error) { return s.files - 1, s.bytes, nil })
	fails := s.reader("fails", "", func() (int, int64, error) {
		return 0, 0, &os.PathError{Op: "open", Path: s.dir + "/x", Err: os.ErrNotExist}
	})
	require.NoError(t, m.Compare(s.ctx, turns.Comparison{Sides: []turns.Side{right, fewer, fails}}))
	records, err := record.Read(&out)
	require.NoError(t, err)
	require.Len(t, records, 3)
	assert.Equal(t, fmt.Sprintf("left out: it saw 29 files, %[1]d bytes; right is 30 files, %[1]d bytes", s.bytes), records[0].Text)
	assert.Equal(t, "left out: open flat_30/x: file does not exist", records[1].Text)
	assert.Equal(t, []any{"right", "v1", 60}, []any{records[2].Who, records[2].Version, records[2].Files})
	assert.ErrorContains(t, m.Compare(s.ctx, turns.Comparison{Sides: []turns.Side{fewer, right}}), "fewer: it saw 29 files")
}

func TestOpenSet(t *testing.T) {
	_, err := openSet(t.TempDir())
	assert.ErrorContains(t, err, "make the set and its manifest with scripts/tickets")
	s, err := openSet(proc)
	require.NoError(t, err)
	assert.Equal(t, "proc", s.name)
	s.calls = 1
	_, err = s.reader("any", "", func() (int, int64, error) { return 0, 0, nil }).Pass()
	assert.NoError(t, err, "entries of /proc come and go")
}
