# Conway's Game of Life on an endless board: awk -v generations=50 -f life.awk
#
# Reads the living cells, "x y" a line, and writes those of that many generations later, unsorted.
{ living[($1 + 0) " " ($2 + 0)] }    # 1 for "1.0"

END {
    for (g = 0; g < generations; g++) {
        split("", near)
        for (cell in living) {
            split(cell, at, " ")
            for (dx = -1; dx <= 1; dx++)
                for (dy = -1; dy <= 1; dy++)
                    if (dx || dy) near[(at[1] + dx) " " (at[2] + dy)]++
        }
        split("", born)
        for (cell in near)
            if (near[cell] == 3 || (near[cell] == 2 && cell in living)) born[cell]
        split("", living)
        for (cell in born) living[cell]
    }
    for (cell in living) print cell
}
