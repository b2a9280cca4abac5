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
	"iter"
	"os"
	"path/filepath"
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

	var roots []string
	for _, arg := range flag.Args() {
		roots = append(roots, filepath.Clean(arg))
	}
	for output, err := range formatTrees(roots) {
		if _, err := os.Stdout.Write(output); err != nil {
			code = fail(err)
		}
		if err != nil {
			code = fail(err)
		}
	}
	return code
}

// formatTrees yields the outputs of the files among roots, and below the others, in their order.
func formatTrees(roots []string) iter.Seq2[[]byte, error] {
	named := func(f *fileproc.File) bool { return f.Path() == f.Root() }
	opts := fileproc.Options{
		Roots: roots, Suffixes: []string{".go"}, Ordered: true, Stat: true, MaxFileSize: fileproc.NoLimit,
		Symlinks: fileproc.SymlinksFiles, SymlinksOutside: true,
		Select:    func(f *fileproc.File) bool { return named(f) || isGoFilename(f.Name()) },
		SelectDir: func(e fileproc.Entry) bool { return !shouldIgnore(e.Path()) },
	}
	return fileproc.Stream(context.Background(), ".", opts, func(f *fileproc.File) ([]byte, error) {
		info, err := f.Info()
		if err != nil {
			return nil, err
		}
		var r reporter
		err = processFile(f.Path(), info, bytes.NewBuffer(f.Data()), &r, named(f))
		return r.Bytes(), fileproc.WithResult(err)
	})
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
	var failure *fileproc.Failure
	if errors.As(err, &failure) {
		err = failure.Err
		if failure.Kind != fileproc.FailedFunc {
			err = &failure.PathError
		}
	}
	if err == errFormattingDiffers {
		return 1
	}
	scanner.PrintError(os.Stderr, err)
	return 2
}
