// Command vet runs go vet's analyzers on packages and their tests, which it loads from source with all that they import. go
// vet compiles the imports first, which takes most of a minute for each platform that has nothing in the build cache.
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"
	"golang.org/x/tools/go/analysis/suite/vet"
)

func main() { multichecker.Main(vet.Suite...) }
