package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/scanner"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"

	"github.com/fileproc/fileproc"

	gversion "mvdan.cc/gofumpt/internal/version"
)

// A reporter holds the output of one file until its turn comes.
type reporter = bytes.Buffer

// readFile returns what has been read already.
func readFile(_ string, _ fs.FileInfo, in io.Reader) ([]byte, error) {
	return in.(*bytes.Buffer).Bytes(), nil
}

func main() { os.Exit(run()) }

func run() (code int) {
	flag.Usage = usage
	flag.Parse()
	if *simplifyAST {
		fmt.Fprintln(os.Stderr, "warning: -s is deprecated as it is always enabled")
	}
	if *rewriteRule != "" {
		fmt.Fprintln(os.Stderr, `the rewrite flag is no longer available; use "gofmt -r" instead`)
		return 2
	}
	if *showVersion {
		fmt.Println(gversion.String(version))
		return 0
	}
	if *cpuprofile != "" {
		f, err := os.Create(*cpuprofile)
		if err != nil {
			return fail(fmt.Errorf("creating cpu profile: %s", err))
		}
		defer f.Close()
		pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	initParserMode()
	if flag.NArg() == 0 {
		return formatInput()
	}

	// The arguments take turns in their order; while one prints, the next are formatted.
	turns := make(chan chan result, runtime.GOMAXPROCS(0))
	go func() {
		defer close(turns)
		for _, arg := range flag.Args() {
			results := make(chan result)
			turns <- results
			go formatTree(filepath.Clean(arg), results)
		}
	}()
	for results := range turns {
		for r := range results {
			if _, err := os.Stdout.Write(r.output); err != nil {
				code = fail(err)
			}
			if r.err != nil {
				code = fail(r.err)
			}
		}
	}
	return code
}

type result struct {
	output []byte
	err    error
}

// formatTree formats the file root, or the files below it up to the first directory that cannot be read.
func formatTree(root string, results chan<- result) {
	defer close(results)
	opts := fileproc.Options{
		Suffixes: []string{".go"}, Ordered: true, Stat: true, MaxFileSize: fileproc.NoLimit,
		Symlinks: fileproc.SymlinksFiles, SymlinksOutside: true,
		Select:    func(f *fileproc.File) bool { return f.Path() == root || isGoFilename(f.Name()) },
		SelectDir: func(e fileproc.Entry) bool { return !shouldIgnore(e.Path()) },
	}
	for output, err := range fileproc.Stream(context.Background(), root, opts, func(f *fileproc.File) ([]byte, error) {
		info, err := f.Info()
		if err != nil {
			return nil, err
		}
		var r reporter
		err = processFile(f.Path(), info, bytes.NewBuffer(f.Data()), &r, f.Path() == root)
		return r.Bytes(), fileproc.WithResult(err)
	}) {
		var failure *fileproc.Failure
		if errors.As(err, &failure) {
			err = failure.Err
			if failure.Kind != fileproc.FailedFunc {
				err = &failure.PathError
			}
		}
		results <- result{output, err}
		if failure != nil && failure.Kind <= fileproc.FailedDir {
			return
		}
	}
}

func formatInput() int {
	if *write {
		return fail(errors.New("error: cannot use -w with standard input"))
	}
	src, err := io.ReadAll(os.Stdin)
	var r reporter
	if err == nil {
		err = processFile("<standard input>", nil, bytes.NewBuffer(src), &r, true)
	}
	os.Stdout.Write(r.Bytes())
	if err != nil {
		return fail(err)
	}
	return 0
}

// fail prints err and returns the exit status that it means.
func fail(err error) int {
	if err == errFormattingDiffers {
		return 1
	}
	scanner.PrintError(os.Stderr, err)
	return 2
}
