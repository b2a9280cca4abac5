//go:build linux

package regress

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/scripts/internal/fail"
)

// TestProve: the comparison finds a slowdown that was planted in the hot path, and finds none between two builds of the same commit. It
// measures HEAD, not what was changed since. FILEPROC_PROVE is how often each comparison is made, for minutes each. What is planted is a
// loop in the function that visits a file; it takes about a tenth of the function's time. With a limit of 5 % (AMD EPYC, 2 shared cores)
// 20 of 20 slowdowns were found, without a false alarm:
//
//	FILEPROC_PROVE=20 go -C scripts test -v -timeout 0 -run Prove ./bench/internal/regress
func TestProve(t *testing.T) {
	repeats, err := strconv.Atoi(os.Getenv("FILEPROC_PROVE"))
	if err != nil {
		t.Skip("FILEPROC_PROVE names no number of comparisons")
	}
	const turns = 250 // of the planted loop for each file, of some four cycles each: about a tenth of its time
	root, err := filepath.Abs("../../../..")
	require.NoError(t, err)
	c := newClone(t, root)
	bc := newCase("flat_5k", "whole")
	bc.ensure(c)
	clean := c.buildRevision("HEAD", "", c.made("old.test"))
	names, sides, hits := []string{"planted", "same commit"}, []source{c.plant(clean, loop(turns), ""), clean}, []int{0, 0}
	for i := range 2 * repeats {
		fmt.Printf("\n%s, %d of %d\n", names[i%2], i/2+1, repeats)
		c.build(sides[i%2], c.made("new.test"))
		err := fail.Try(func() { comparison{c, selection{runs: 30}, 0.05, moreSamples}.times([]benchCase{bc}) })
		if errors.Is(err, errSlower) {
			hits[i%2]++
			fmt.Println(err)
		} else {
			require.NoError(t, err)
		}
	}
	fmt.Printf("\nplanted slowdown found %d times of %d; false alarms %d of %d\n", hits[0], repeats, hits[1], repeats)
	assert.Equal(t, []int{repeats, 0}, hits)
}

// loop is the code of a loop of so many turns. The variable keeps the compiler from leaving the loop out; it is no global one,
// which the workers would share.
func loop(turns int) string {
	return fmt.Sprintf("x := uint64(i)\nfor range %d { x = x*6364136223846793005 + 1 }\nif x == 42 { return }\n", turns)
}

// plant adds code to what is done for each file, and declarations after the imports. The next plant takes its place.
func (c clone) plant(src source, code, declarations string) source {
	const visit = "func (w *worker) visit("
	before, after, ok := strings.Cut(string(fail.Must(os.ReadFile(filepath.Join(src.dir, plantedFile)))), visit)
	head, body, ok2 := strings.Cut(after, "{\n")
	fail.If(!ok || !ok2, "%s has no %s…) to plant a slowdown in", plantedFile, visit)
	if strings.Contains(code, "syscall.") {
		before = strings.Replace(before, "import (\n", "import (\n\t\"syscall\"\n", 1)
	}
	src.planted = c.made("planted.go")
	fail.On(os.WriteFile(src.planted, []byte(before+declarations+visit+head+"{\n"+code+body), 0o644))
	return src
}
