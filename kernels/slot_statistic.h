/* What a query adds to the importance of a stored token; the numbers of winnow::Statistic
 * (backend/device/description.hpp). */
#define SCORE_MAGNITUDE 1
#define PROBABILITY 2
#define PROBABILITY_SQUARED 3
#define ABOVE_MEAN 4
