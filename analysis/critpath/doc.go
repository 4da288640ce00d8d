// Package critpath extracts critical paths: for every root of a closed trace the spans that its duration was spent in, without gaps.
// [Extractor.Extract] lists the steps from spans to paths. [WhatIf] replays a path with other times.
package critpath
