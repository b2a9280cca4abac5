//go:build linux

package scale

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rate is how often a nanosecond n processes together work for w and then use l.
func rate(n int, w float64, l *line) float64 {
	const times = 1000
	var c clock
	for range n {
		c.start(0, func(p *process) {
			for range times {
				p.work(w)
				p.use(l, 0)
			}
		})
	}
	c.run()
	return float64(n*times) / c.now
}

// A lock that is held for h of each p nanoseconds lets through min(n/p, 1/h).
func TestLock(t *testing.T) {
	const p, h = 1000, 100
	for _, n := range []int{1, 2, 5, 10, 11, 30, 100} {
		assert.InEpsilon(t, min(float64(n)/p, 1.0/h), rate(n, p-h, &line{hold: h}), 0.01, "%d processes", n)
	}
}

// A cache line costs nothing while one process has it, and lets through one write for each move when many want it.
func TestCacheLine(t *testing.T) {
	assert.InEpsilon(t, 1.0/300, rate(1, 300, &line{move: 50}), 0.001)
	for _, n := range []int{2, 4, 7, 20} {
		assert.InEpsilon(t, min(float64(n)/(300+50), 1.0/50), rate(n, 300, &line{move: 50}), 0.01, "%d processes", n)
	}
}

var free = costs{Wake: 100, List: 100, Dir: 1000, Content: 1000, ContentAlone: 1500, Metadata: 400, MetadataAlone: 500}

// One worker takes the sum of what is to be done.
func TestOneWorker(t *testing.T) {
	for want, l := range map[float64]load{
		1100: {files: 100 * scanSize, parts: 1},
		500:  {files: 100 * scanSize, parts: 1, metadata: true},
		1111: {files: 10_000, dirs: 100, parts: 1},  // and a listed directory and an opened one for each 100 files
		1875: {files: 10_000, dirs: 2500, parts: 1}, // four files are read alone
		875:  {files: 10_000, dirs: 2500, parts: 1, metadata: true},
	} {
		ns, _, _ := simulate(free, l, 1)
		assert.InEpsilon(t, want, ns/float64(l.files), 0.001, "%+v", l)
	}
}

// Without anything that workers share, n of them take an n-th of the time, as long as the listing lets them.
func TestListing(t *testing.T) {
	c := free
	c.MetadataAlone = c.Metadata // of a batch that a worker joins
	for n := 1; n <= 32; n *= 2 {
		for _, parts := range []int{1, 2, n} {
			l := load{files: 400 * scanSize, parts: parts, metadata: true}
			ns, _, _ := simulate(c, l, n)
			most := min(float64(n)/500, float64(parts)/100)
			assert.InEpsilon(t, most, float64(l.files)/ns, 0.06, "%d workers, %d parts", n, parts)
		}
	}
	_, busiest, _ := simulate(free, load{files: 100 * scanSize, parts: 1}, 32)
	assert.Equal(t, "the listing", busiest.name)
}

// The line that lets through the least is the one that is named.
func TestBusiest(t *testing.T) {
	for name, of := range map[string]struct {
		load
		more func(*costs)
	}{
		"the count of the credentials": {load{files: 100_000, dirs: 1000, parts: 1}, func(c *costs) { c.Move = 100 }},
		"the descriptor table":         {load{files: 40_000, dirs: 10_000, parts: 1}, func(c *costs) { c.Table = 200 }},
		"the count of the directory":   {load{files: 100_000, parts: 32, metadata: true}, func(c *costs) { c.Move = 100 }},
		"`dirCache.mu`":                {load{files: 40_000, dirs: 10_000, parts: 1, metadata: true}, func(c *costs) { c.Cache, c.CacheUses = 100, 9 }},
		"`pool.mu`":                    {load{files: 40_000, dirs: 10_000, parts: 1, metadata: true}, func(c *costs) { c.Pool = 300 }},
	} {
		c := free
		of.more(&c)
		_, busiest, _ := simulate(c, of.load, 32)
		assert.Equal(t, name, busiest.name)
	}
}

// Every file is read once, whatever the number of workers, and the same run takes the same time again.
func TestEveryFileOnce(t *testing.T) {
	c := free
	c.Pool, c.Cache, c.CacheUses, c.Wake, c.Table, c.Move = 100, 10, 9, 12_000, 30, 50
	for _, l := range loads {
		l.files, l.dirs = l.files/20, l.dirs/20
		for n := 1; n <= 128; n = n*3 + 1 {
			l.parts = max(l.parts, 1)
			ns, _, read := simulate(c, l, n)
			again, _, _ := simulate(c, l, n)
			assert.Equal(t, l.files, read, "%s, %d workers", l.name, n)
			assert.Equal(t, ns, again)
		}
	}
}

func TestCommand(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	old := os.Stdout
	defer func() { os.Stdout = old }()
	was, wasLoads := trees, loads
	defer func() { trees, loads = was, wasLoads }()
	trees, loads = []load{{"flat", 0, 300, false, 1, false}, {"nested", 3, 300, false, 1, false}, {"many", 50, 50 * manyFiles, false, 1, false}}, loads[:1]
	loads[0].files = 3000
	r, w, err := os.Pipe()
	require.NoError(t, err)
	os.Stdout = w
	require.NoError(t, Main(t.Context(), []string{"-passes", "2"}))
	w.Close()
	text := make([]byte, 1<<16)
	n, _ := r.Read(text)
	assert.Regexp(t, `(?s)\| many, metadata \| 2 \| \d+ \| [\d.]+ \|\n.*\n\|flat, content\|([\d.]+\|){7}.*\|\n$`, string(text[:n]))
}
