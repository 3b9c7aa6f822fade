/*
 * Notary data as the details of deliveries that the queue process asks for (delivery_details.h).
 */
#ifndef ZMAILER_NOTARY_DETAILS_H
#define ZMAILER_NOTARY_DETAILS_H

/* Before a role begins. */
void notary_details_register(void);

#endif
