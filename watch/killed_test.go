package watch

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

const killedVariable = "FILEPROC_WATCH_KILLED"

// TestKilledLoop is the program that TestKilled starts: a loop that saves soon after each change, and prints what it gets.
func TestKilledLoop(t *testing.T) {
	dir := os.Getenv(killedVariable)
	if dir == "" {
		t.Skip("TestKilled starts it")
	}
	w := New(filepath.Join(dir, "now", "root"), incremental.Options[string]{File: filepath.Join(dir, "cache"), Version: "1"}, fileproc.Options{}, content)
	w.Quiet, w.Poll, w.saveAfter = time.Millisecond, time.Millisecond, time.Millisecond
	for c, err := range w.Changes(t.Context()) {
		switch {
		case err != nil:
			fmt.Printf("-%q\n", c.Rel)
		case c.Settled:
			fmt.Println(".")
		case c.Kind == incremental.Deleted:
			fmt.Printf("-%q\n", c.Rel)
		default:
			fmt.Printf("+%q %q %v\n", c.Rel, c.Value, c.Kind)
		}
	}
}

// TestKilled: the first burst of a loop gives the results of a full run, whenever the previous loop was killed, and whatever has changed since.
// FILEPROC_WATCHED is six times the number of kills.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("a process for each kill")
	}
	dir := t.TempDir()
	testtree.Removable(t, dir)
	h := newHistory(t, uint64(time.Now().UnixNano()), dir)
	h.rooted = true
	exe, err := os.Executable()
	require.NoError(t, err)
	kept := 0
	for range testtree.Rounds(t, "FILEPROC_WATCHED", 60) / 6 {
		h.change(h.IntN(60))
		os.MkdirAll(h.root, 0o755)
		want := h.full(t, fileproc.Options{})
		cmd := exec.Command(exe, "-test.run=^TestKilledLoop$")
		cmd.Env = append(os.Environ(), killedVariable+"="+dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		got, lines := map[string]string{}, bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() && lines.Text() != "." {
			var rel, value, kind string
			if n, _ := fmt.Sscanf(lines.Text(), "+%q %q %s", &rel, &value, &kind); n == 3 {
				got[rel] = value
				if kind == incremental.Unchanged.String() {
					kept++
				}
			}
		}
		require.NoError(t, lines.Err())
		go io.Copy(io.Discard, out) // until it is killed
		h.change(h.IntN(60))
		time.Sleep(time.Duration(h.IntN(20)) * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		require.Empty(t, want.differences(got))
	}
	require.Positive(t, kept, "this tests nothing if no loop has saved")
}
