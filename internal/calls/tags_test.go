//go:build linux

package calls

import (
	"bufio"
	"go/build/constraint"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// buildConstraint returns the constraint of a file of this package.
func buildConstraint(t *testing.T, file string) constraint.Expr {
	f, err := os.Open(file)
	if err != nil {
		t.Skip("the tests run without their source: ", err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if constraint.IsGoBuild(s.Text()) {
			expr, err := constraint.Parse(s.Text())
			require.NoError(t, err)
			return expr
		}
	}
	t.Fatalf("%s has no build constraint", file)
	return nil
}

// Every build for Linux has one of the two variants, and only those in which
// linkname is known to work have that one.
func TestVariantsAreComplementary(t *testing.T) {
	linkname, fallback := buildConstraint(t, "linkname.go"), buildConstraint(t, "nolinkname.go")
	tags := []string{"linux", "gc", "race", "msan", "asan", "go1.27"}
	for set := range 1 << len(tags) {
		on := map[string]bool{}
		var names []string
		for i, tag := range tags {
			if set&(1<<i) != 0 {
				on[tag] = true
				names = append(names, tag)
			}
		}
		eval := func(expr constraint.Expr) bool { return expr.Eval(func(tag string) bool { return on[tag] }) }
		known := on["linux"] && on["gc"] && !on["race"] && !on["msan"] && !on["asan"] && !on["go1.27"]
		assert.Equal(t, known, eval(linkname), "linkname.go with the tags %v", names)
		assert.Equal(t, on["linux"] && !known, eval(fallback), "nolinkname.go with the tags %v", names)
	}
}

// The fallback passes the tests of Run too. A build tag selects it, since the
// other ways take a C compiler or another version of Go.
func TestFallback(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: building another test binary takes seconds")
	}
	goCommand := func(args ...string) (string, error) {
		cmd := exec.Command("go", args...)
		// These tests may be emulated; the go command is not.
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOOS=", "GOARCH=", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := goCommand("list", "-deps", "-test", "."); err != nil {
		t.Skip("no go command, or none of the modules that it needs: ", err, out)
	}
	out, err := goCommand("test", "-tags", "go1.27", "-v", "-run", "^TestRun", ".")
	require.NoError(t, err, out)
	require.Equal(t, 2, strings.Count(out, "--- PASS: TestRun"), out)
}
