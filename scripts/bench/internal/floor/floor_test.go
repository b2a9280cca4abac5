//go:build linux

package floor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/internal/uring"
	"github.com/fileproc/fileproc/scripts/internal/record"
)

// The Go loop sees all files and bytes at every ring depth and batch size.
func TestGoLoop(t *testing.T) {
	dir := t.TempDir()
	want := 0
	for i := range 300 {
		sub := filepath.Join(dir, fmt.Sprint(i%7))
		require.NoError(t, os.MkdirAll(sub, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(sub, fmt.Sprint("file", i)), make([]byte, i), 0o644))
		want += i
	}
	depths := []int{0, 1, 16, 256}
	if ring, err := uring.New(1, cReadSize); err != nil {
		t.Logf("left out: io_uring: %v", err)
		depths = depths[:1]
	} else {
		ring.Close()
	}
	for _, depth := range depths {
		for _, chunk := range []int{1, 16, 1024} {
			p, err := goLoop{dir, 2, chunk, depth}.side()()
			require.NoError(t, err)
			assert.Equal(t, 300, p.files, "depth %d, %d at a time", depth, chunk)
			assert.EqualValues(t, want, p.bytes, "depth %d, %d at a time", depth, chunk)
		}
	}
	_, err := goLoop{filepath.Join(dir, "nosuch"), 1, 1, 0}.side()()
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// All modes of the C loop that read see all bytes of files smaller and larger than a read, and in more than one window.
func TestCLoop(t *testing.T) {
	dir := t.TempDir()
	want := 0
	for i := range 600 {
		sub := filepath.Join(dir, fmt.Sprint(i%7))
		require.NoError(t, os.MkdirAll(sub, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(sub, fmt.Sprint("file", i)), make([]byte, 10*i), 0o644))
		want += 10 * i
	}
	c, err := startCLoop(dir, 2)
	require.NoError(t, err)
	if c == nil {
		t.Skip("left out: no C compiler")
	}
	defer c.close()
	for mode, sizes := range map[string][]int{"read": {8192}, "whole": {100, 2000, 8192}, "order": {100, 2000, 8192}, "stat": {0}, "stat-order": {0}} {
		for _, size := range sizes {
			p, err := c.side(mode, size)()
			if mode == "order" && err != nil && strings.Contains(err.Error(), "io_uring") {
				t.Logf("left out: order: %v", err)
				continue
			}
			require.NoError(t, err, mode)
			assert.Equal(t, 600, p.files, "%s, %d bytes", mode, size)
			assert.EqualValues(t, want, p.bytes, "%s, %d bytes", mode, size)
		}
	}
}

// All sides, WalkDir too, read a set through a symbolic link.
func TestDirectoryOfLink(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	require.NoError(t, writeFiles(dir, 3))
	require.NoError(t, os.Symlink(dir, link))
	set, err := directory(link)
	require.NoError(t, err)
	files, bytes, err := walkDir(set)
	require.NoError(t, err)
	assert.Equal(t, 3, files)
	assert.EqualValues(t, 1200, bytes)

	_, err = directory(filepath.Join(dir, "ticket-0000000.md"))
	assert.ErrorContains(t, err, "not a directory")
	_, err = directory(filepath.Join(dir, "nosuch"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestFioPass(t *testing.T) {
	p, err := fioPass([]byte(`{"jobs":[{"job_runtime":300,"usr_cpu":10,"sys_cpu":40,"read":{"runtime":290,"io_bytes":800,"total_ios":2}},
		{"job_runtime":200,"usr_cpu":0,"sys_cpu":100,"read":{"runtime":200,"io_bytes":400,"total_ios":1}}]}`))
	require.NoError(t, err)
	assert.Equal(t, pass{wall: 290e6, cpu: 350e6, files: 3, bytes: 1200}, p)
	_, err = fioPass([]byte("fio: a warning"))
	assert.ErrorContains(t, err, "fio said")
	_, err = fioPass([]byte("{}"))
	assert.ErrorContains(t, err, "fio said")
}

// With -json every pass of a pair is printed, also if there is only one side. Each round measures every comparison, so all of
// them are from the same moments, and the sides of a pair take turns going first.
func TestPrinter(t *testing.T) {
	var out bytes.Buffer
	var calls string
	p := printer{set: "flat_1k", json: json.NewEncoder(&out)}
	called := func(name string) side {
		return func() (pass, error) { calls += name; return pass{wall: 2, cpu: 3, files: 1, bytes: 4}, nil }
	}
	p.header(2, 1)
	require.NoError(t, p.compare(2, 1, comparison{"a / b", called("a"), called("b")}, comparison{"c / b", called("c"), called("b")},
		comparison{"alone / b", called("x"), nil}))
	require.NoError(t, p.leftOut("reasons"))
	assert.Equal(t, "aabb"+"ccbb"+"xx"+"ba"+"bc"+"x", calls, "each side is called once more in the first round, to warm up")
	var who []string
	for dec := json.NewDecoder(&out); dec.More(); {
		var r record.Record
		require.NoError(t, dec.Decode(&r))
		who = append(who, r.Who+r.Text)
	}
	round := []string{"a / b: ours", "a / b: theirs", "c / b: ours", "c / b: theirs", "alone / b: ours"}
	assert.Equal(t, append(slices.Concat(round, round), "left out: reasons"), who)

	fewer := func() (pass, error) { return pass{wall: 2, files: 1, bytes: 3}, nil }
	assert.EqualError(t, p.compare(1, 1, comparison{"a / fewer", called("a"), fewer}), "a / fewer: ours saw 1 files, 4 bytes; theirs 1 files, 3 bytes")
}

func TestSlowness(t *testing.T) {
	for kind, want := range map[string][2]bool{"": {}, "busy": {true, false}, "serial": {false, true}, "busy,serial": {true, true}} {
		s, err := newSlowness("1ms", kind)
		require.NoError(t, err)
		assert.Equal(t, want, [2]bool{s.busy, s.serial}, kind)
		s.wait()
	}
	_, err := newSlowness("1ms", "busy,idle")
	assert.ErrorContains(t, err, `unknown kind "idle"`)
}
