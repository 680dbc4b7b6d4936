package main

import "slices"

// sections are all comparisons, in the order in which they run.
func sections() []section {
	return slices.Concat(redisSections(), processSections(), middlewareSections(), endToEndSections())
}
