package fileproc_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDependencies: importers of fileproc get these modules and no others.
func TestDependencies(t *testing.T) {
	inModule(t)
	modules := func(pkg string) []string {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", pkg).Output()
		if err != nil {
			t.Skip("no go command, or not in the module's directory: ", err)
		}
		got := strings.Fields(string(out))
		slices.Sort(got)
		require.Contains(t, got, "github.com/fileproc/fileproc")
		return slices.Compact(got)
	}
	allowed := []string{"github.com/bmatcuk/doublestar/v4", "github.com/fileproc/fileproc", "golang.org/x/sync", "golang.org/x/sys"}
	require.Subset(t, allowed, modules("."))

	// The sums of a snapshot, and the hash of a path in the index of a cache file: 5 ns, the same on every platform.
	allowed = append(allowed, "github.com/cespare/xxhash/v2")
	require.Subset(t, allowed, modules("./cache"))

	// The lock of a cache file's writers: one call for all systems that have locks.
	allowed = append(allowed, "github.com/gofrs/flock")
	require.Subset(t, allowed, modules("./incremental"))

	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	for _, line := range strings.Split(string(mod), "\n") {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) < 2 || !strings.HasPrefix(fields[1], "v") {
			continue
		}
		require.Contains(t, append(allowed, "github.com/stretchr/testify", "go.yaml.in/yaml/v3"), fields[0])
	}
}
