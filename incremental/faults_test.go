package incremental_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// seeded returns the seed of a test that is random.
func seeded(t *testing.T) uint64 {
	seed := rand.Uint64()
	if s := os.Getenv("FILEPROC_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		require.NoError(t, err, "FILEPROC_SEED")
	}
	t.Logf("FILEPROC_SEED=%d", seed)
	return seed
}

// A job is what another process does: runs over Root, each after it has overwritten some files.
type job struct {
	Root, File    string
	Shard, Shards int
	Runs          int
	Seed          uint64
}

const jobVariable = "FILEPROC_TEST_JOB"

// TestJob does the job of another process.
func TestJob(t *testing.T) {
	text := os.Getenv(jobVariable)
	if text == "" {
		t.Skip("for the processes that other tests start")
	}
	var j job
	require.NoError(t, json.Unmarshal([]byte(text), &j))
	r := rand.New(rand.NewPCG(j.Seed, 0))
	for i := range j.Runs {
		if j.Runs > 1 {
			overwrite(r, j.Root, 10)
		}
		_, err := incremental.Process(t.Context(), j.Root, bulky(j.File), fileproc.Options{Shard: j.Shard, Shards: j.Shards}, bulkyResult)
		if j.Runs == 1 {
			require.NoError(t, err)
		} else if i == 0 {
			fmt.Println("ready")
		}
	}
}

// start lets another process do j.
func (j job) start(t *testing.T) *exec.Cmd {
	text, err := json.Marshal(j)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestJob$")
	cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	return cmd
}

// bulky compares content, because that is kept at once, however new a file is.
func bulky(file string) incremental.Options[string] {
	return incremental.Options[string]{File: file, Version: "1", Compare: incremental.CompareContent, Codec: incremental.Raw[string]()}
}

// bulkyResult makes results that take more than one piece of the cache file.
func bulkyResult(f *fileproc.File) (string, error) {
	if strings.HasSuffix(f.Name(), "7") {
		return "", fileproc.ErrSkip
	}
	return f.Rel() + "=" + strings.Repeat(string(f.Data())+"\n", 100), nil
}

func overwrite(r *rand.Rand, root string, n int) {
	for range n {
		os.WriteFile(filepath.Join(root, fmt.Sprintf("d%d/f%03d", r.IntN(2), r.IntN(200))), fmt.Appendf(nil, "%020d", r.Uint64()), 0o644)
	}
}

func bulkyTree(t *testing.T) (root, file string) {
	dir := t.TempDir()
	root = filepath.Join(dir, "root")
	for d := range 2 {
		var list []string
		for i := range 200 {
			list = append(list, fmt.Sprintf("d%d/f%03d=%020d", d, i, i))
		}
		require.NoError(t, os.MkdirAll(root, 0o755))
		require.True(t, testtree.Make(t, root, list...))
	}
	return root, filepath.Join(dir, "cache")
}

// equalsFull makes a run, and requires the results of a full run. It returns how many files fn was called for.
func equalsFull(t *testing.T, root string, inc incremental.Options[string], opts fileproc.Options) int64 {
	t.Helper()
	opts.Ordered, opts.Report = true, new(fileproc.Report)
	full, err := fileproc.Process(t.Context(), root, opts, bulkyResult)
	require.NoError(t, err)
	got, err := incremental.Process(t.Context(), root, inc, opts, bulkyResult)
	require.NoError(t, err)
	if !slices.Equal(full, got) {
		require.Equal(t, full, got)
	}
	return opts.Report.Processed + opts.Report.Skipped[fileproc.SkippedByFunc]
}

// TestKilled: processes that are killed at any moment, two of them at once, leave a cache file that the next run can use.
func TestKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		t.Skip("no processes")
	}
	r := rand.New(rand.NewPCG(seeded(t), 0))
	root, file := bulkyTree(t)
	torn, kept := 0, int64(0)
	count := testtree.Rounds(t, "FILEPROC_FAULTS", 8)
	for range count {
		var jobs [2]*exec.Cmd
		for i := range jobs {
			j := job{Root: root, File: file, Shards: 2, Shard: i, Runs: 1 << 30, Seed: r.Uint64()}
			if r.IntN(2) == 0 {
				j.Shard, j.Shards = 0, 0
			}
			jobs[i] = j.start(t)
			out, err := jobs[i].StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, jobs[i].Start())
			if r.IntN(4) > 0 { // else it is killed while it starts
				out.Read(make([]byte, 1))
			}
		}
		for _, cmd := range jobs {
			time.Sleep(time.Duration(r.Int64N(int64(8 * time.Millisecond))))
			require.NoError(t, cmd.Process.Kill())
			cmd.Wait()
		}
		if _, err := os.Stat(file + ".fileproc-tmp"); err == nil {
			torn++
		}
		if r.IntN(2) == 0 {
			overwrite(r, root, 5)
		}
		kept += 400 - equalsFull(t, root, bulky(file), fileproc.Options{})
		require.Zero(t, equalsFull(t, root, bulky(file), fileproc.Options{}))
		if r.IntN(10) == 0 {
			require.NoError(t, os.Remove(file))
		}
	}
	t.Logf("%d rounds of kills: %d left a temporary file, %d of %d results were kept", count, torn, kept, count*400)
	require.NotZero(t, kept)
}

// TestWritersAtOnceLoseNothing: the cache file keeps all results that several processes save at the same time.
func TestWritersAtOnceLoseNothing(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		t.Skip("no processes")
	}
	r := rand.New(rand.NewPCG(seeded(t), 0))
	root, file := bulkyTree(t)
	count := testtree.Rounds(t, "FILEPROC_FAULTS", 6)
	for range count {
		if r.IntN(3) == 0 {
			os.Remove(file)
		}
		overwrite(r, root, r.IntN(200))
		var jobs [4]*exec.Cmd
		for i := range jobs {
			jobs[i] = job{Root: root, File: file, Shard: i, Shards: len(jobs), Runs: 1}.start(t)
			var out bytes.Buffer
			jobs[i].Stdout, jobs[i].Stderr = &out, &out
			require.NoError(t, jobs[i].Start())
		}
		for _, cmd := range jobs {
			require.NoError(t, cmd.Wait(), "%s", cmd.Stdout)
		}
		require.Zero(t, equalsFull(t, root, bulky(file), fileproc.Options{}))
	}
	t.Logf("%d rounds of 4 writers at once", count)
}

// TestDamagedCache: whatever a cache file has become, the next run is right, and the run after that calls fn for no file.
func TestDamagedCache(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(seeded(t), 0))
	root, file := bulkyTree(t)
	equalsFull(t, root, bulky(file), fileproc.Options{})
	var old []byte
	kinds := map[string]int{}
	count := testtree.Rounds(t, "FILEPROC_FAULTS", 30)
	for range count {
		whole, err := os.ReadFile(file)
		require.NoError(t, err)
		kind := choose(r, "truncated", "flipped", "block", "old and new", "zeros behind", "newer format", "older kept", "text", "foreign", "directory")
		kinds[kind]++
		b := damage(r, kind, bytes.Clone(whole), old)
		foreign := kind == "foreign" || kind == "directory"
		if kind == "directory" {
			require.NoError(t, os.Remove(file))
			require.NoError(t, os.Mkdir(file, 0o755))
		} else {
			require.NoError(t, os.WriteFile(file, b, 0o600))
		}
		old = whole
		overwrite(r, root, r.IntN(20))
		opts := fileproc.Options{}
		if r.IntN(3) == 0 {
			opts.Shards, opts.Shard = 2, r.IntN(2)
		}
		full, err := fileproc.Process(t.Context(), root, opts, bulkyResult)
		require.NoError(t, err)
		inc := bulky(file)
		inc.Deleted = func(rel string) { t.Errorf("%s: told of %s", kind, rel) }
		got, err := incremental.Process(t.Context(), root, inc, opts, bulkyResult)
		require.ElementsMatch(t, full, got, kind)
		if foreign || kind == "flipped" || kind == "block" || kind == "truncated" || kind == "zeros behind" || kind == "old and new" {
			if err != nil {
				require.ErrorIs(t, err, incremental.ErrNotSaved, kind)
			}
			if foreign {
				require.Error(t, err)
				if kind == "foreign" {
					now, _ := os.ReadFile(file)
					require.Equal(t, b, now)
				}
			}
			if err != nil {
				require.NoError(t, os.Remove(file))
				require.NoError(t, os.WriteFile(file, whole, 0o600))
			}
		} else {
			require.NoError(t, err, kind)
		}
		equalsFull(t, root, bulky(file), fileproc.Options{})
		require.Zero(t, equalsFull(t, root, bulky(file), fileproc.Options{}), kind)
	}
	t.Logf("%d rounds of damage: %v", count, kinds)
}

// damage damages the cache file b in one of several ways. The file that was saved before it is old.
func damage(r *rand.Rand, kind string, b, old []byte) []byte {
	at := 0
	if len(b) > 0 {
		at = r.IntN(len(b))
		if r.IntN(4) == 0 {
			at = r.IntN(min(len(b), 200))
		}
	}
	switch kind {
	case "truncated":
		b = b[:at]
	case "flipped":
		for range 1 + r.IntN(8) {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		}
	case "block":
		for i := range b[at:min(len(b), at+1+r.IntN(5000))] {
			b[at+i] = byte(r.Uint32())
		}
	case "old and new":
		copy(b[at:], old[min(at, len(old)):])
	case "zeros behind":
		clear(b[at:])
	case "newer format":
		binary.LittleEndian.PutUint32(b[16:], 3+r.Uint32N(3))
		binary.LittleEndian.PutUint32(b[124:], crc32.Checksum(b[:124], crc32.MakeTable(crc32.Castagnoli)))
	case "older kept":
		if old != nil {
			b = bytes.Clone(old)
		}
	case "text":
		b = append(b, "and more"...)
	case "foreign":
		b = []byte("notes that someone has kept for years\n")
	}
	return b
}

func choose[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }
