// Command find prints what gitcha finds in a directory: find [-git] [-except PATTERN] DIRECTORY NAME...
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/muesli/gitcha"
)

func main() {
	git := flag.Bool("git", false, "respect .gitignore")
	except := flag.String("except", "", "pattern to ignore")
	flag.Parse()
	find := gitcha.FindAllFilesExcept
	if *git {
		find = gitcha.FindFilesExcept
	}
	var ignore []string
	if *except != "" {
		ignore = []string{*except}
	}
	found, err := find(flag.Arg(0), flag.Args()[1:], ignore)
	if err != nil {
		log.Fatal(err)
	}
	w := bufio.NewWriter(os.Stdout)
	defer w.Flush()
	for f := range found {
		fmt.Fprintln(w, f.Path, f.Info.Mode(), f.Info.Size(), f.Info.ModTime().UnixNano())
	}
}
