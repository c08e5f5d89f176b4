# One year of rabbits and foxes (Lotka 1925, Volterra 1926; the meadow feeds 100 rabbits).
#
# Reads animals.txt (rabbits and foxes) and hunger.txt; writes next.txt in the form of animals.txt,
# and rabbits.txt, foxes.txt, change.txt with one number each.
FILENAME == "hunger.txt" { hunger = $1; next }
{ for (i = 1; i <= NF; i++) seen[n++] = $i }    # on one line or on several

END {
    rabbits = seen[0]; foxes = seen[1]
    days = 100
    for (day = 0; day < days; day++) {
        eaten = hunger * 0.05 * rabbits * foxes
        born = 1.0 * rabbits * (1 - rabbits / 100)
        grown = 0.5 * eaten - 0.6 * foxes
        rabbits += (born - eaten) / days
        foxes += grown / days
    }
    a = rabbits - seen[0]; b = foxes - seen[1]
    printf "%.17g\n%.17g\n", rabbits, foxes > "next.txt"
    printf "%.17g\n", rabbits > "rabbits.txt"
    printf "%.17g\n", foxes > "foxes.txt"
    printf "%.17g\n", (a * a + b * b) ^ 0.5 > "change.txt"
}
