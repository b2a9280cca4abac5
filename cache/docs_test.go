package cache

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocsStart runs the program at the beginning of docs/cache.md.
func TestDocsStart(t *testing.T) {
	if testing.Short() {
		t.Skip("builds what no build tag changes: once, without -short, is enough")
	}
	page, err := os.ReadFile("../docs/cache.md")
	if err != nil {
		t.Skip("the tests run without the documentation: ", err)
	}
	_, program, _ := bytes.Cut(page, []byte("\n```go\n"))
	program, _, found := bytes.Cut(program, []byte("```\n"))
	require.True(t, found)
	main := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(main, program, 0o666))
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command("go", args...)
		cmd.Dir = ".."
		// The tests may be emulated; the go command is not.
		cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOOS=", "GOARCH=", "GOPROXY=off", "GOWORK=off")
		return cmd.CombinedOutput()
	}
	if out, err := run("list", "-deps", "./cache"); err != nil {
		t.Skipf("no go command, or not in the module's directory: %v: %s", err, out)
	}
	out, err := run("run", main)
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "1000 reads,")
}
