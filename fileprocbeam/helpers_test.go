package fileprocbeam_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/io/filesystem/local"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/io/textio"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/register"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/universal/extworker"
	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/fileprocbeam"
	"github.com/stretchr/testify/require"
)

// The tests run on Prism in this process, or on the job service that this variable names (host:port).
const endpointVariable = "FILEPROCBEAM_ENDPOINT"

// external is whether that is so.
var external = os.Getenv(endpointVariable) != ""

// With this variable, the test binary is a worker in a process of its own.
const workerVariable = "FILEPROCBEAM_WORKER"

func TestMain(m *testing.M) {
	flag.Parse()
	*jobopts.Endpoint = os.Getenv(endpointVariable)
	*jobopts.EnvironmentType = "loopback"
	beam.Init()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil))) // Prism logs each failure that a test asks for
	log.SetLogger(&log.Standard{Level: log.SevFatal})
	if os.Getenv(workerVariable) != "" {
		work()
		return
	}
	dir, err := os.MkdirTemp("", "fileprocbeam") // Beam's runner leaves files in TMPDIR
	if err != nil {
		panic(err)
	}
	os.Setenv("TMPDIR", dir)
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// work serves a pool of workers until standard input ends.
func work() {
	pool, err := extworker.StartLoopback(context.Background(), 0)
	if err != nil {
		panic(err)
	}
	fmt.Println(pool.EnvironmentConfig(context.Background()))
	io.Copy(io.Discard, os.Stdin)
}

// workElsewhere makes the pipelines of a test run on a worker in another process, which it returns.
func workElsewhere(t *testing.T) *exec.Cmd {
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), workerVariable+"=1")
	worker.Stderr = os.Stderr
	stdin, err := worker.StdinPipe()
	require.NoError(t, err)
	stdout, err := worker.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, worker.Start())
	t.Cleanup(func() {
		stdin.Close()
		worker.Process.Kill()
		worker.Wait()
	})
	address, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	*jobopts.EnvironmentType, *jobopts.EnvironmentConfig = "external", strings.TrimSpace(address)
	*jobopts.WorkerBinary = os.Args[0]
	t.Cleanup(func() {
		*jobopts.EnvironmentType, *jobopts.EnvironmentConfig, *jobopts.WorkerBinary = "loopback", "", ""
	})
	return worker
}

// run runs a pipeline on the runner of these tests. It fails the test if the pipeline neither ends nor fails.
func run(t *testing.T, p *beam.Pipeline) (beam.PipelineResult, error) {
	t.Helper()
	type outcome struct {
		result beam.PipelineResult
		err    error
	}
	ended := make(chan outcome, 1)
	go func() {
		result, err := prism.Execute(context.Background(), p)
		ended <- outcome{result, err}
	}()
	select {
	case o := <-ended:
		return o.result, o.err
	case <-time.After(2 * time.Minute):
		require.Fail(t, "the pipeline does not end")
		return nil, nil
	}
}

// A File is what the tests know of a file.
type File struct {
	Path []byte
	Size int64
	Sum  string
}

func (f File) String() string { return fmt.Sprintf("%q %d %s", f.Path, f.Size, f.Sum) }

func sum(f *fileproc.File) (File, error) {
	return File{[]byte(f.Rel()), int64(len(f.Data())), fmt.Sprintf("%x", sha256.Sum256(f.Data()))}, nil
}

// mishap does what a file's content says.
func mishap(f *fileproc.File) (File, error) {
	switch string(f.Data()) {
	case "poison":
		return File{}, errors.New("poisoned")
	case "retry":
		return File{}, fmt.Errorf("busy: %w", fileprocbeam.ErrRetry)
	case "panic":
		panic("told to panic")
	case "skip":
		return File{}, fileproc.ErrSkip
	case "skip all":
		return File{}, errSkipAll
	case "kill":
		if os.Getenv(workerVariable) == "" {
			return File{}, errors.New("would kill the test")
		}
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return File{}, err
		}
		self.Kill()
		select {}
	}
	return sum(f)
}

var (
	sums    = fileprocbeam.Register("sums", sum)
	mishaps = fileprocbeam.Register("mishaps", mishap)
)

func lineOf(f File) string                        { return f.String() }
func lineOfFailure(f fileprocbeam.Failure) string { return fmt.Sprintf("%q %q", f.Path, f.Error) }

func init() {
	register.Function1x1(lineOf)
	register.Function1x1(lineOfFailure)
}

// process runs a pipeline with one transform, and returns the lines of what it has written: sorted, and nil if there is
// no file.
func process(t *testing.T, transform *fileprocbeam.Transform[File], root string, opts fileproc.Options) (results, failures []string, counts map[string]int64, err error) {
	t.Helper()
	out := t.TempDir()
	p, s := beam.NewPipelineWithRoot()
	done, failed := transform.Process(s, root, opts)
	textio.Write(s, filepath.Join(out, "results"), beam.ParDo(s, lineOf, done))
	textio.Write(s, filepath.Join(out, "failures"), beam.ParDo(s, lineOfFailure, failed))
	result, err := run(t, p)
	if err == nil {
		counts = map[string]int64{}
		for _, c := range result.Metrics().AllMetrics().Counters() {
			if c.Key.Namespace == "fileprocbeam" {
				counts[c.Key.Name] += c.Result()
			}
		}
	}
	return lines(t, filepath.Join(out, "results")), lines(t, filepath.Join(out, "failures")), counts, err
}

func lines(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	got := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	slices.Sort(got)
	return got
}
