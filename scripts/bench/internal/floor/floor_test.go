//go:build linux

package floor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/internal/uring"
	"github.com/fileproc/fileproc/scripts/internal/turns"
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
			p, err := turns.Timed(goLoop{dir, 2, chunk, depth}.read)
			require.NoError(t, err)
			assert.Equal(t, 300, p.Files, "depth %d, %d at a time", depth, chunk)
			assert.EqualValues(t, want, p.Bytes, "depth %d, %d at a time", depth, chunk)
		}
	}
	_, _, err := goLoop{filepath.Join(dir, "nosuch"), 1, 1, 0}.read()
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
	r := &run{}
	defer r.end()
	for mode, sizes := range map[string][]int{"read": {8192}, "whole": {100, 2000, 8192}, "order": {100, 2000, 8192}, "stat": {0}, "stat-order": {0}} {
		for _, size := range sizes {
			c := r.cLoop(dir, mode, size, 2)
			if c.Missing != "" {
				t.Skip("left out: " + c.Missing)
			}
			p, err := c.Pass()
			if mode == "order" && err != nil && strings.Contains(err.Error(), "io_uring") {
				t.Logf("left out: order: %v", err)
				continue
			}
			require.NoError(t, err, mode)
			assert.Equal(t, 600, p.Files, "%s, %d bytes", mode, size)
			assert.EqualValues(t, want, p.Bytes, "%s, %d bytes", mode, size)
		}
	}
}

func TestFioPass(t *testing.T) {
	p, err := fioPass([]byte(`{"jobs":[{"job_runtime":300,"usr_cpu":10,"sys_cpu":40,"read":{"runtime":290,"io_bytes":800,"total_ios":2}},
		{"job_runtime":200,"usr_cpu":0,"sys_cpu":100,"read":{"runtime":200,"io_bytes":400,"total_ios":1}}]}`))
	require.NoError(t, err)
	assert.Equal(t, turns.Pass{Wall: 290e6, CPU: 350e6, Files: 3, Bytes: 1200}, p)
	_, err = fioPass([]byte("fio: a warning"))
	assert.ErrorContains(t, err, "fio said")
	_, err = fioPass([]byte("{}"))
	assert.ErrorContains(t, err, "fio said")
}

func TestSlowness(t *testing.T) {
	for kind, want := range map[string][2]bool{"": {}, "busy": {true, false}, "serial": {false, true}, "busy,serial": {true, true}} {
		s, err := newSlowness("1ms", kind)
		require.NoError(t, err)
		assert.Equal(t, want, [2]bool{s.busy, s.serial}, kind)
		s.wait()
	}
	_, err := newSlowness("1ms", "busy,idle")
	assert.ErrorContains(t, err, `unknown kind "busy,idle"`)
}
